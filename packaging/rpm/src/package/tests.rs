use rpm::FileFlags;

use super::*;

fn tree(at: &Path) {
    for (path, mode) in [
        ("etc/virtfleet/agent.yaml", 0o644),
        ("usr/bin/virtfleet-agent", 0o755),
        (
            "usr/lib/systemd/system/kubelet.service.d/10-virtfleet.conf",
            0o644,
        ),
        ("usr/share/man/man1/virtfleet-agent.1.gz", 0o644),
        ("usr/share/licenses/virtfleet-agent/LICENSE", 0o644),
    ] {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "stand-in\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir_all(at.join("etc/virtfleet/agent.d")).unwrap();
}

fn built(tree: &Path) -> Package {
    build(&PackageSource {
        tree,
        scripts: &Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts"),
        version: "1.2.3",
        arch: "x86_64",
        built_at: 1_700_000_000,
    })
    .unwrap()
}

fn bytes(package: &Package) -> Vec<u8> {
    let mut bytes = Vec::new();
    package.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn files_keep_modes_and_belong_to_the_package() {
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    let bytes = bytes(&built(folder.path()));
    let package = Package::parse(&mut bytes.as_slice()).unwrap();
    package.verify_digests().unwrap();
    assert_eq!(
        package.canonical_filename().unwrap(),
        "virtfleet-agent-1.2.3-1.x86_64.rpm"
    );
    let entries = package.metadata.get_file_entries().unwrap();
    let found: Vec<(String, u16, FileFlags)> = entries
        .iter()
        .map(|entry| {
            (
                entry.path().display().to_string(),
                entry.mode().permissions(),
                entry.flags(),
            )
        })
        .collect();
    let config = FileFlags::CONFIG | FileFlags::NOREPLACE;
    let expected = [
        ("/etc/virtfleet", 0o755, FileFlags::empty()),
        ("/etc/virtfleet/agent.d", 0o755, FileFlags::empty()),
        ("/etc/virtfleet/agent.yaml", 0o644, config),
        ("/usr/bin/virtfleet-agent", 0o755, FileFlags::empty()),
        (
            "/usr/lib/systemd/system/kubelet.service.d",
            0o755,
            FileFlags::empty(),
        ),
        (
            "/usr/lib/systemd/system/kubelet.service.d/10-virtfleet.conf",
            0o644,
            FileFlags::empty(),
        ),
        ("/usr/share/licenses/virtfleet-agent", 0o755, FileFlags::empty()),
        (
            "/usr/share/licenses/virtfleet-agent/LICENSE",
            0o644,
            FileFlags::LICENSE,
        ),
        ("/usr/share/man/man1/virtfleet-agent.1.gz", 0o644, FileFlags::DOC),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(path, mode, flags)| (path.to_owned(), mode, flags))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn equal_sources_give_equal_bytes() {
    let [first, second] = [(); 2].map(|()| {
        let folder = tempfile::tempdir().unwrap();
        tree(folder.path());
        bytes(&built(folder.path()))
    });
    assert!(first == second, "they differ");
}

#[test]
fn what_cannot_be_packaged_is_named() {
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    std::os::unix::fs::symlink("/x", folder.path().join("usr/bin/link")).unwrap();
    let source = |scripts| PackageSource {
        tree: folder.path(),
        scripts,
        version: "1",
        arch: "x86_64",
        built_at: 1,
    };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let error = build(&source(&scripts)).err().unwrap();
    assert!(
        format!("{error:#}").contains("usr/bin/link: neither a file nor a folder"),
        "{error:#}"
    );
    let error = build(&source(Path::new("/nowhere"))).err().unwrap();
    assert!(format!("{error:#}").contains("read /nowhere/post"), "{error:#}");
}

//! The container images: their structure, and its root filesystem in a container.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::{Compression, read::GzDecoder};
use serde_json::{Value, json};
use virtfleet_tests::{
    bins,
    image::{
        FileContent, Image, ImageFile, ImageInput, ImageKind, USER, container_disk, files, metadata_options,
        sbom, unpack, write_tree,
    },
    ports,
    process::{Launch, Process},
    scrape::Client,
    skip, wait,
};

use crate::expressions::{read, root};

/// Maximum time until the collector answers, and of one command.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// The files of an image with stand-ins for the programs: compressing the real ones takes a minute
/// in a debug build.
fn files_of(kind: ImageKind) -> Vec<ImageFile> {
    let programs = kind.programs().iter();
    let programs = programs.map(|name| (*name, name.as_bytes().to_vec())).collect();
    let manual = kind.manual().unwrap();
    files(programs, manual, read("LICENSE").into_bytes(), b"{}".to_vec())
}

/// An image with the files of [`files_of`].
fn write(kind: ImageKind, folder: &Path) -> Image {
    let input = ImageInput {
        title: kind.package().to_owned(),
        description: kind.description().to_owned(),
        files: files_of(kind),
        version: "1.2.3".to_owned(),
        revision: "0123abc".to_owned(),
        architecture: "amd64".to_owned(),
        created: 1_767_225_600,
        compression: Compression::fast(),
        config: kind.config(),
        made_by: kind.made_by().to_owned(),
    };
    input.write(folder).unwrap()
}

fn parsed(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The file of a blob, by its descriptor. Its size is that of the descriptor.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap();
    let path = layout.join("blobs").join(digest.replace(':', "/"));
    let said = Launch::new("sha256sum").arg(&path).text(STEP_TIMEOUT).unwrap();
    assert!(
        digest.ends_with(said.split(' ').next().unwrap()),
        "{digest}: {said}"
    );
    assert_eq!(fs::metadata(&path).unwrap().len(), descriptor["size"]);
    path
}

/// Configuration and layer of the layout.
fn image(layout: &Path) -> (Value, PathBuf) {
    let index = parsed(&layout.join("index.json"));
    let manifest = parsed(&blob(layout, &index["manifests"][0]));
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let configuration = parsed(&blob(layout, &manifest["config"]));
    (configuration, blob(layout, &manifest["layers"][0]))
}

#[test]
fn image_is_an_oci_layout_and_the_same_at_each_build() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| folder.path().join(name));
    let written = write(ImageKind::Collector, &first);
    assert_eq!(written, write(ImageKind::Collector, &second));
    let index = fs::read(first.join("index.json")).unwrap();
    assert_eq!(index, fs::read(second.join("index.json")).unwrap());
    let layout = parsed(&first.join("oci-layout"));
    assert_eq!(layout["imageLayoutVersion"], "1.0.0");

    let (configuration, layer) = image(&first);
    assert_eq!(
        parsed(&first.join("index.json"))["manifests"][0]["digest"],
        written.digest
    );
    let runs = &configuration["config"];
    assert_eq!(
        (&runs["User"], &runs["Entrypoint"]),
        (&json!(USER), &json!([ImageKind::Collector.entrypoint()]))
    );
    let labels = runs["Labels"].as_object().unwrap();
    for name in [
        "title",
        "description",
        "licenses",
        "version",
        "created",
        "revision",
    ] {
        let label = labels.get(&format!("org.opencontainers.image.{name}"));
        assert!(label.is_some_and(|value| value != ""), "{name}");
    }
    let rootfs = folder.path().join("rootfs");
    fs::create_dir(&rootfs).unwrap();
    unpack(File::open(layer).unwrap(), &rootfs).unwrap();
    assert_eq!(
        fs::read(rootfs.join("usr/bin/virtfleetctl")).unwrap(),
        b"virtfleetctl"
    );
    for path in [
        "usr/share/bash-completion/completions/virtfleetctl",
        "usr/share/doc/virtfleet/LICENSE",
        "usr/share/doc/virtfleet/sbom.cdx.json",
        "usr/share/fish/vendor_completions.d/virtfleetctl.fish",
        "usr/share/man/man1/virtfleet-collector-serve.1",
        "usr/share/man/man1/virtfleetctl-vm-revoke.1",
        "usr/share/zsh/site-functions/_virtfleet-collector",
        "usr/share/zsh/site-functions/_virtfleetctl",
    ] {
        assert!(rootfs.join(path).is_file(), "{path}");
    }
    // Only the programs of the image.
    assert!(!rootfs.join("usr/share/man/man1/virtfleet-agent.1").exists());
}

/// The Containerfile copies this folder.
#[test]
fn image_has_the_files_that_are_written_for_the_containerfile() {
    let folder = tempfile::tempdir().unwrap();
    let [layout, rootfs, tree] = ["layout", "rootfs", "tree"].map(|name| folder.path().join(name));
    write(ImageKind::Collector, &layout);
    for empty in [&rootfs, &tree] {
        fs::create_dir(empty).unwrap();
    }
    let (_, layer) = image(&layout);
    unpack(File::open(layer).unwrap(), &rootfs).unwrap();
    let files = files_of(ImageKind::Collector);
    write_tree(&files, &tree).unwrap();
    let state = |root: &Path| {
        let mut found = BTreeSet::new();
        let mut open = vec![root.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                let content = if path.is_dir() {
                    open.push(path.clone());
                    None
                } else {
                    Some(fs::read(&path).unwrap())
                };
                found.insert((path.strip_prefix(root).unwrap().to_owned(), mode, content));
            }
        }
        found
    };
    let (expected, found) = (state(&rootfs), state(&tree));
    let names = |all: &BTreeSet<(PathBuf, u32, Option<Vec<u8>>)>| -> Vec<(PathBuf, u32)> {
        all.iter().map(|(path, mode, _)| (path.clone(), *mode)).collect()
    };
    assert_eq!(names(&found), names(&expected));
    assert!(found == expected, "contents differ");
    for file in files {
        let FileContent::Bytes(content) = file.content else {
            panic!("{} is not in memory", file.path);
        };
        let path = PathBuf::from(file.path);
        assert!(
            found.contains(&(path.clone(), file.mode, Some(content))),
            "{}",
            path.display()
        );
    }
}

/// Gardener's node-agent extracts the agent by the path that is the webhook's default.
#[test]
fn image_of_the_agent_has_the_binary_where_the_webhook_expects_it() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("layout");
    write(ImageKind::Agent, &layout);
    let (configuration, layer) = image(&layout);
    let runs = &configuration["config"];
    assert_eq!(
        runs["Labels"]["org.opencontainers.image.title"],
        "virtfleet-agent"
    );
    assert_eq!(runs["ExposedPorts"], json!({}));
    let rootfs = folder.path().join("rootfs");
    fs::create_dir(&rootfs).unwrap();
    unpack(File::open(layer).unwrap(), &rootfs).unwrap();
    let webhook = virtfleet_collector::cli::command();
    let webhook = webhook.find_subcommand("gardener-webhook").unwrap();
    let mut flags = webhook.get_arguments();
    let path = flags.find(|flag| flag.get_long() == Some("agent.path")).unwrap();
    let path = path.get_default_values()[0].to_str().unwrap();
    let program = rootfs.join(path.trim_start_matches('/'));
    assert_eq!(fs::read(&program).unwrap(), b"virtfleet-agent");
    assert_eq!(
        fs::metadata(&program).unwrap().permissions().mode() & 0o777,
        0o755
    );
    let shipped = fs::read_to_string(root().join("packaging/helm/virtfleet-gardener/values.yaml")).unwrap();
    assert!(shipped.contains(&format!("  path: {path}\n")), "{path}");
}

/// virt-launcher's QEMU runs as 107 and reads the one file below `/disk`.
#[test]
fn image_of_a_container_disk_has_the_disk_for_the_user_of_qemu() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("debian.qcow2");
    fs::write(&disk, vec![7; 3_000_000]).unwrap();
    let input = ImageInput {
        title: "containerDisk".to_owned(),
        description: "for a test".to_owned(),
        files: container_disk(disk.clone()),
        version: "1".to_owned(),
        revision: String::new(),
        architecture: "amd64".to_owned(),
        created: 1_767_225_600,
        compression: Compression::fast(),
        config: json!({}),
        made_by: "a test".to_owned(),
    };
    let layout = folder.path().join("layout");
    input.write(&layout).unwrap();
    let (_, layer) = image(&layout);
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(layer).unwrap()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header().clone();
        let path = entry.path().unwrap().display().to_string();
        let owner = (header.uid().unwrap(), header.gid().unwrap());
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        found.push((path, header.mode().unwrap(), owner));
        assert!(content.is_empty() || content == fs::read(&disk).unwrap());
    }
    let expected = [("disk/", 0o755, (0, 0)), ("disk/disk.qcow2", 0o440, (107, 107))];
    assert_eq!(
        found,
        expected.map(|(path, mode, owner)| (path.to_owned(), mode, owner))
    );
}

/// The shipped manifests and the Containerfile run the program as the image does.
#[test]
fn image_runs_as_the_manifests_and_the_containerfile_say() {
    let deployment = read("packaging/collector/kubernetes/infra/deployment.yaml");
    let (user, group) = USER.split_once(':').unwrap();
    assert!(deployment.contains(&format!("runAsUser: {user}\n")));
    assert!(deployment.contains(&format!("runAsGroup: {group}\n")));
    let containerfile = read("packaging/image/Containerfile");
    let arguments = |name: &str| -> Vec<String> {
        let lines = containerfile.lines();
        let found = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.map(str::to_owned).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    write(ImageKind::Collector, folder.path());
    let (configuration, _) = image(folder.path());
    let runs = &configuration["config"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ports = runs["ExposedPorts"].as_object().unwrap();
    let ports: Vec<&str> = ports.keys().map(String::as_str).collect();
    for (name, expected) in [
        ("FROM", "scratch".to_owned()),
        ("COPY", "--chown=0:0 . /".to_owned()),
        ("ENV", text(&runs["Env"][0])),
        ("WORKDIR", text(&runs["WorkingDir"])),
        ("EXPOSE", ports.join(" ")),
        ("USER", text(&runs["User"])),
        ("ENTRYPOINT", runs["Entrypoint"].to_string()),
        ("CMD", runs["Cmd"].to_string()),
    ] {
        assert_eq!(arguments(name), [expected], "{name}");
    }
    // The version, the commit and its time are arguments of the build.
    let labels = arguments("LABEL").into_iter().map(|label| {
        let (name, value) = label.split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    });
    let labels: BTreeMap<String, String> = labels.collect();
    let expected = runs["Labels"].as_object().unwrap();
    assert!(labels.keys().eq(expected.keys()), "{labels:?}");
    for (name, value) in &labels {
        match value.strip_prefix('$') {
            Some(argument) => assert!(arguments("ARG").contains(&argument.to_owned()), "{argument}"),
            None => assert_eq!(*value, text(&expected[name])),
        }
    }
}

#[test]
fn image_bill_of_materials_names_what_is_linked_and_no_more() {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options([metadata_options(), vec!["--offline".to_owned()]].concat())
        .exec()
        .unwrap();
    let bill: Value = serde_json::from_slice(
        &sbom(&metadata, &read("Cargo.lock"), ImageKind::Collector.package()).unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"]),
        (&json!("CycloneDX"), &json!("1.5"))
    );
    let components = bill["components"].as_array().unwrap();
    let names: BTreeSet<&str> = components
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for linked in [
        "virtfleet-collector",
        "virtfleet-wire",
        "tokio",
        "rustls",
        "kube",
        "ring",
    ] {
        assert!(names.contains(linked), "{linked}");
    }
    // Of tests, of the agent, and of build scripts.
    for absent in ["proptest", "virtfleet-tests", "virtfleet-agent", "cc"] {
        assert!(!names.contains(absent), "{absent}");
    }
    for component in components {
        let name = component["name"].as_str().unwrap();
        let has_hash = component["hashes"][0]["content"]
            .as_str()
            .is_some_and(|hash| hash.len() == 64);
        assert!(has_hash || name.starts_with("virtfleet-"), "{name} has no hash");
        assert!(component["licenses"].is_array(), "{name} has no licence");
    }
}

/// A container that ends with the value.
struct Container {
    runc: PathBuf,
    state: PathBuf,
    process: Process,
}

impl Drop for Container {
    fn drop(&mut self) {
        let delete =
            Launch::new(&self.runc)
                .arg("--root")
                .arg(&self.state)
                .args(["delete", "--force", "virtfleet"]);
        // It is gone already if the program has ended.
        drop(delete.said(STEP_TIMEOUT));
    }
}

/// The image in a container as Kubernetes runs it: without rights, with a read-only root. The
/// program of the test is not static, so it gets the libraries of this machine.
fn start(folder: &Path, runc: &Path, configuration: &Value, layer: &Path) -> Container {
    let rootfs = folder.join("rootfs");
    fs::create_dir(&rootfs).unwrap();
    unpack(File::open(layer).unwrap(), &rootfs).unwrap();
    fs::copy(
        bins::collector().unwrap(),
        rootfs.join(ImageKind::Collector.entrypoint().trim_start_matches('/')),
    )
    .unwrap();
    let bind = |from: &Path, to: &str| json!({ "destination": to, "source": from, "type": "bind", "options": ["rbind", "ro"] });
    let mut mounts = vec![
        json!({ "destination": "/proc", "source": "proc", "type": "proc" }),
        bind(&folder.join("etc"), "/etc/virtfleet"),
    ];
    for library in ["/lib", "/lib64"] {
        if Path::new(library).exists() {
            mounts.push(bind(&fs::canonicalize(library).unwrap(), library));
        }
    }
    let program = &configuration["config"];
    let (user, group) = USER.split_once(':').unwrap();
    let mut arguments = program["Entrypoint"].as_array().unwrap().clone();
    arguments.extend(["serve".into(), "--config=/etc/virtfleet/collector.yaml".into()]);
    let number = |text: &str| text.parse::<u32>().unwrap();
    let none = json!([]);
    let settings = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": number(user), "gid": number(group) },
            "args": arguments,
            "env": program["Env"],
            "cwd": program["WorkingDir"],
            "noNewPrivileges": true,
            "capabilities": { "bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none },
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": mounts,
        "linux": { "namespaces": [{ "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" }] },
    });
    fs::write(folder.join("config.json"), settings.to_string()).unwrap();
    let state = folder.join("state");
    let process = Launch::new(runc)
        .arg("--root")
        .arg(&state)
        .args(["run", "--bundle"])
        .arg(folder)
        .arg("virtfleet")
        .start(folder)
        .unwrap();
    Container {
        runc: runc.to_owned(),
        state,
        process,
    }
}

#[test]
fn tier3_image_answers_in_a_container_without_rights() {
    let test = "tier3_image_answers_in_a_container_without_rights";
    let needs = || {
        skip::root()?;
        skip::program("runc")
    };
    let Some(runc) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("layout");
    write(ImageKind::Collector, &layout);
    let (configuration, layer) = image(&layout);
    let etc = folder.path().join("etc");
    fs::create_dir_all(etc.join("inventory/infra")).unwrap();
    let probes = ports::free().unwrap();
    let settings = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\n\
         inventory: {{ folder: /etc/virtfleet/inventory }}\n\
         server: {{ address: \"{}\", probeAddress: \"{probes}\" }}\n",
        ports::free().unwrap()
    );
    fs::write(etc.join("collector.yaml"), settings).unwrap();
    let container = start(folder.path(), &runc, &configuration, &layer);
    wait::eventually(STEP_TIMEOUT, "the collector in the container answers", || {
        Client::plain(probes, STEP_TIMEOUT)?
            .get("/healthz")?
            .ok()
            .map(drop)
    })
    .unwrap_or_else(|error| panic!("{error:#}: {}", container.process.log()));
}

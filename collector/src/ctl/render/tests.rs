use std::fs;

use clap::Parser as _;

use super::*;
use crate::{
    ca::{CaService, RootKind},
    ctl::{
        cli::{Program, TopLevelCommand},
        tests::Server,
    },
};

/// The text that is rendered.
fn rendered(folder: &Path, input: &str, args: &[&str]) -> (Result<(), String>, String, String) {
    let as_text: &[&str] = if args[0] == "cloud-init" { &["--text"] } else { &[] };
    let (done, out, err) = rendered_bytes(folder, input, &[args, as_text].concat(), false);
    (done, String::from_utf8(out).unwrap(), err)
}

fn rendered_bytes(
    folder: &Path,
    input: &str,
    args: &[&str],
    terminal: bool,
) -> (Result<(), String>, Vec<u8>, String) {
    fs::write(
        folder.join("d.yaml"),
        format!("apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\n{input}"),
    )
    .unwrap();
    let file = folder.join("d.yaml").display().to_string();
    let (verb, rest) = args.split_first().unwrap();
    let line = ["virtfleetctl", "render", verb, &file]
        .into_iter()
        .chain(rest.iter().copied());
    let program = Program::try_parse_from(line).unwrap();
    let TopLevelCommand::Render(what) = program.command else {
        panic!("not render")
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        colour: false,
        terminal,
        now: || 0,
    };
    let done = run(&what, &program.connection, &mut console).map_err(|fail| {
        let expected = if matches!(fail, Fail::Usage(_)) { 2 } else { 1 };
        assert_eq!(fail.exit_code(), expected);
        fail.to_string()
    });
    (done, out, String::from_utf8(err).unwrap())
}

const AGENT: &str = "agent: {file: agent, sources: [{url: \"https://x/y\"}]}\nsettings: {server: {tls: {certificate: /c, key: /k, clientCA: /a}}}\n";

#[test]
fn files_of_the_input_are_read_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("agent"), "abc").unwrap();
    let (done, out, err) = rendered(folder.path(), AGENT, &["cloud-init"]);
    done.unwrap();
    assert!(
        out.starts_with("#cloud-config\n# Made by `virtfleetctl render cloud-init "),
        "{out}"
    );
    assert!(out.contains("sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"));
    assert!(
        err.contains("KubeVirt accepts at most 2048") && err.contains("Secret"),
        "{err}"
    );
    let (done, out, _) = rendered(folder.path(), AGENT, &["cloud-init", "--form", "mime"]);
    done.unwrap();
    assert!(out.starts_with("MIME-Version: 1.0\n"), "{out}");
    let (done, out, _) = rendered(folder.path(), AGENT, &["ignition"]);
    done.unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["systemd"].is_object());
}

/// User-data must be small, and cloud-init unpacks it.
#[test]
fn user_data_is_compressed_and_never_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("agent"), "abc").unwrap();
    for form in ["cloud-config", "mime"] {
        let args = ["cloud-init", "--form", form];
        let (done, text, _) = rendered(folder.path(), AGENT, &args);
        done.unwrap();
        let (done, packed, err) = rendered_bytes(folder.path(), AGENT, &args, false);
        done.unwrap();
        assert_eq!(packed, gzip(text.as_bytes()), "{form}");
        assert!(packed.len() < text.len(), "{form}");
        assert!(err.contains(&format!("note: {} bytes", packed.len())), "{err}");

        let (done, out, _) = rendered_bytes(folder.path(), AGENT, &args, true);
        let error = done.unwrap_err();
        assert!(error.contains("use --text") && out.is_empty(), "{error}");
        let args = [&args[..], &["--text"]].concat();
        let (done, out, _) = rendered_bytes(folder.path(), AGENT, &args, true);
        done.unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}

/// The author of the input must not choose which files of this machine are sent.
#[test]
fn files_elsewhere_require_an_option() {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("delivery");
    fs::create_dir_all(folder.join("more")).unwrap();
    fs::write(around.path().join("secret"), "theirs").unwrap();
    fs::write(folder.join("more/motd"), "hello").unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    let absolute = around.path().join("secret").display().to_string();
    let send = |from: &str, args: &[&str]| {
        let input = format!("files: [{{path: /etc/virtfleet/x, from: {from}}}]\n");
        rendered(
            &folder,
            &input,
            &[&["cloud-init", "--without-tls"], args].concat(),
        )
    };
    for from in ["../secret", "link", &absolute] {
        let (done, out, _) = send(from, &[]);
        let error = done.unwrap_err();
        assert!(
            error.contains("files[0].from") && error.contains("--files-from-anywhere"),
            "{error}"
        );
        assert_eq!(out, "");
        send(from, &["--files-from-anywhere"]).0.unwrap();
    }
    send("more/motd", &[]).0.unwrap();
}

#[test]
fn errors_have_a_place_and_nothing_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("theirs"), "hello").unwrap();
    let theirs = folder.path().join("theirs").display().to_string();
    fs::write(
        folder.path().join("broken"),
        "#cloud-config\npackages: [a\nruncmd: b]: c\n",
    )
    .unwrap();
    let broken = folder.path().join("broken").display().to_string();
    fs::write(folder.path().join("list"), "#cloud-config\n- packages\n").unwrap();
    let list = folder.path().join("list").display().to_string();
    for (input, args, expected) in [
        (
            AGENT,
            vec!["cloud-init"],
            "d.yaml:3: agent.file: agent cannot be read: ",
        ),
        ("wiat: 1s\nwait: 1h\n", vec!["cloud-init"], "d.yaml:3: wiat: "),
        (
            "",
            vec!["cloud-init", "--without-tls", "--with", &theirs],
            "cloud-init does not recognise its first line",
        ),
        (
            "",
            vec!["cloud-init", "--without-tls", "--with", "/nowhere"],
            "/nowhere: cannot be read: ",
        ),
        (
            "",
            vec!["ignition", "--without-tls", "--with", &theirs],
            "theirs:1: not JSON",
        ),
        (
            "",
            vec!["cloud-init", "--without-tls", "--with", &broken],
            "broken:3: ",
        ),
        (
            "",
            vec!["cloud-init", "--without-tls", "--form", "mime", "--with", &list],
            "list:2: a cloud-config must be a mapping",
        ),
    ] {
        let (done, out, _) = rendered(folder.path(), input, &args);
        let error = done.unwrap_err();
        assert!(error.contains(expected) && out.is_empty(), "{error}");
    }
}

/// A file that Ignition cannot write keeps the machine from booting. cloud-init's systems have a
/// `/usr` that can be written.
#[test]
fn files_below_usr_are_refused_where_it_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let profile = |utility: &str| {
        let path = folder.path().join(utility);
        let text = format!(
            "apiVersion: operatingsystemmanager.k8c.io/v1alpha1\nkind: OperatingSystemProfile\nmetadata: {{name: osp}}\n\
             spec: {{osName: flatcar, version: v1.0.0, provisioningUtility: {utility}, provisioningConfig: {{}}}}\n"
        );
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (of_ignition, of_cloud_init) = (profile("ignition"), profile("cloud-init"));
    let input =
        |path: &str| format!("files:\n- {{path: /etc/a, content: a}}\n- {{path: {path}, content: a}}\n");
    let ignition = vec!["ignition", "--without-tls"];
    for args in [&ignition, &vec!["osp", "--without-tls", "--from", &of_ignition]] {
        for path in ["/usr/lib/b", "/lib/b"] {
            let (done, out, _) = rendered(folder.path(), &input(path), args);
            let error = done.unwrap_err();
            let place = "d.yaml:5: files[1].path: /usr is read-only";
            assert!(error.contains(place) && out.is_empty(), "{args:?}: {error}");
        }
    }
    for (path, args) in [
        ("/usrlocal/b", ignition),
        ("/usr/lib/b", vec!["cloud-init", "--without-tls"]),
        (
            "/usr/lib/b",
            vec!["osp", "--without-tls", "--from", &of_cloud_init],
        ),
    ] {
        let (done, _, _) = rendered(folder.path(), &input(path), &args);
        done.unwrap_or_else(|error| panic!("{args:?}: {error}"));
    }
}

const ENROLS: &str = "agent: {file: agent, sources: [{url: \"https://x/y\"}]}\ntls: {enrolment: true}\n";

/// User-data is readable by everyone in the guest, and one for all VMs of a pool.
#[test]
fn an_enrolled_guest_gets_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("agent"), "abc").unwrap();
    let service = CaService::in_memory();
    let authorities = service.authorities();
    let roots = authorities.borrow().client_roots_pem();
    let ca = folder.path().join("fleet.crt");
    fs::write(&ca, &roots).unwrap();
    let ca = ca.display().to_string();
    let server = Server::with_ca(service);
    let url = server.url();
    for from in [&["--fleet-ca", &ca], &["--server", &url]] {
        for form in [
            &["cloud-init"][..],
            &["cloud-init", "--form", "mime"],
            &["ignition"],
        ] {
            let args = [form, from].concat();
            let (done, out, err) = rendered(folder.path(), ENROLS, &args);
            done.unwrap();
            assert!(!out.contains("PRIVATE KEY"), "{args:?}");
            let fingerprint = authorities.borrow().roots(RootKind::Clients)[0]
                .fingerprint
                .clone();
            assert!(err.contains(&fingerprint), "{args:?}: {err}");
            if form == ["cloud-init"] {
                assert!(out.contains("enrolment: true"), "{out}");
                for line in roots.lines() {
                    assert!(out.contains(line), "{line}");
                }
            }
        }
    }
    // What is beside the input.
    let input = ENROLS.replace("true}", "true, clientCA: fleet.crt}");
    let (done, out, err) = rendered(folder.path(), &input, &["cloud-init"]);
    done.unwrap();
    assert!(
        out.contains("/etc/virtfleet/tls/ca.crt") && err.contains("SHA-256"),
        "{err}"
    );
}

/// The join token is a secret: the settings name its file, and only `files` can include it.
#[test]
fn push_is_passed_on_and_its_token_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("agent", "abc"),
        ("token", "vft1.a.b"),
        ("join-token", "vft1.a.b"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let push = |collector: &str| {
        format!(
            "agent: {{file: agent, sources: [{{url: \"https://x/y\"}}]}}\nsettings: {{push: {{collector: \"{collector}\", \
             tokenFile: /etc/virtfleet/join-token}}, server: {{tls: {{enrolment: true, clientCA: /a}}}}}}\n"
        )
    };
    let (done, out, _) = rendered(folder.path(), &push("relay.a.svc:10913"), &["cloud-init"]);
    done.unwrap();
    for part in ["relay.a.svc:10913", "tokenFile: /etc/virtfleet/join-token"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // Files are included in base64.
    let included = |out: &str| out.contains("vft1.a.b") || out.contains("dmZ0MS5hLmI");
    assert!(!included(&out), "{out}");
    let files = "files: [{path: /etc/virtfleet/join-token, from: token}]\n";
    let (done, out, _) = rendered(
        folder.path(),
        &(push("relay.a.svc:10913") + files),
        &["cloud-init"],
    );
    done.unwrap();
    assert!(included(&out), "{out}");
    let (done, _, _) = rendered(folder.path(), &push("relay"), &["cloud-init"]);
    let error = done.unwrap_err();
    assert!(
        error.contains("settings.push.collector") && error.contains("host:port"),
        "{error}"
    );
    // The image has the certificates, which the settings here do not name.
    let image = "settings: {push: {collector: \"10.0.0.9:10913\"}}\n";
    rendered(folder.path(), image, &["cloud-init", "--without-tls"])
        .0
        .unwrap();
}

#[test]
fn problems_of_the_fleets_authority_name_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(folder.path().join("agent"), "abc").unwrap();
    fs::write(folder.path().join("text"), "hello").unwrap();
    fs::write(
        folder.path().join("broken"),
        "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let leaf = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
    fs::write(folder.path().join("leaf"), leaf.cert.pem()).unwrap();
    let both = leaf.cert.pem() + &leaf.signing_key.serialize_pem();
    fs::write(folder.path().join("both"), both).unwrap();
    let named = ENROLS.replace("true}", "true, clientCA: leaf}");
    let unreachable = "http://127.0.0.1:1".to_owned();
    for (input, args, expected) in [
        (
            ENROLS,
            ["--server", &unreachable],
            "Is virtfleet-collector running? Set --server or VIRTFLEET_SERVER; or pass the file with --fleet-ca",
        ),
        (ENROLS, ["--fleet-ca", &path("absent")], "absent: No such file"),
        (
            ENROLS,
            ["--fleet-ca", &path("text")],
            "no PEM block of the type CERTIFICATE",
        ),
        (
            ENROLS,
            ["--fleet-ca", &path("broken")],
            "tls.clientCA:1: this certificate cannot be parsed",
        ),
        (
            ENROLS,
            ["--fleet-ca", &path("leaf")],
            "tls.clientCA:1: this certificate must not sign others",
        ),
        (ENROLS, ["--fleet-ca", &path("both")], "contains a private key"),
        (
            &named,
            ["--fleet-ca", &path("both")],
            "the input names leaf as tls.clientCA; remove one of them",
        ),
        (
            AGENT,
            ["--fleet-ca", &path("both")],
            "has no effect without tls: {enrolment: true}",
        ),
    ] {
        let args = [&["cloud-init"], &args[..]].concat();
        let (done, out, _) = rendered(folder.path(), input, &args);
        let error = done.unwrap_err();
        assert!(error.contains(expected) && out.is_empty(), "{args:?}: {error}");
    }
}

#[test]
fn settings_that_enrol_without_an_authority_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let enrols = "settings: {server: {tls: {enrolment: true}}}\n";
    let (done, _, _) = rendered(folder.path(), enrols, &["cloud-init"]);
    let error = done.unwrap_err();
    assert!(
        error.contains("settings.server.tls") && error.contains("clientCA"),
        "{error}"
    );
    let baked = "settings: {server: {tls: {enrolment: true, clientCA: /a}}}\n";
    rendered(folder.path(), baked, &["cloud-init"]).0.unwrap();
}

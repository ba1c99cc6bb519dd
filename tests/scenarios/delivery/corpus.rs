//! User-data as users write it, and with mistakes: what is accepted, cloud-init and Ignition accept
//! with the agent in it, and nothing else in it has another meaning.

use std::{fs, path::Path, time::Duration};

use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use virtfleet_delivery::{
    cloud_init::{self, Form, With},
    ignition,
    payload::{Outside, Payload, build},
    spec,
};
use virtfleet_tests::{parts, process::Launch, skip};

use super::{
    cases::{ARCHIVES, CLOUD_CONFIGS},
    examples::program,
};

const SEED: u64 = 38;
/// Time for all texts of one kind.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A delivery without an agent.
fn payload() -> Payload {
    let text = "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\n";
    let none = || Err("not asked".to_owned());
    let mut outside = Outside {
        read: &mut |_| Err("not asked".to_owned()),
        sha256: &mut |_| Err("not asked".to_owned()),
        fleet_ca: &mut || none(),
    };
    build(&spec::read("delivery.yaml", text).unwrap(), &mut outside).unwrap()
}

// Cloud-configs.

const KEYS: &[&str] = &[
    "runcmd",
    "packages",
    "bootcmd",
    "bootcmd",
    "write_files",
    "a",
    "b",
    "<<",
    "=",
    "1",
    "yes",
    "'bootcmd'",
    "\"bootcmd\"",
    "\"boot\\x63md\"",
    "!!str bootcmd",
    "&k c",
    "*k ",
    "é",
    "[a]",
    "2020-01-01",
];
const WORDS: &[&str] = &[
    "jq",
    "echo a",
    "systemctl",
    "0644",
    "yes",
    "a b c",
    "é",
    "'it''s'",
    "\"a\\tb\"",
    "1:20",
];
const ODD: &[&str] = &[
    "",
    "~",
    "''",
    "=",
    "<<",
    "0x_",
    "0x1f",
    "0b_",
    "08",
    "1_",
    "2020-13-45",
    "2020-02-30T1:00:00Z",
    "2020-02-29 10:00:00 +1:00",
    "2020-1-1 1:00:00 +24:00",
    "http://x/?a=b",
    "a:b",
    "- a",
    "? b",
    "a: b",
    "a #b",
    "#c",
    "@x",
    "%y",
    "`z",
    "*a",
    "*b",
    "&a x",
    "&b {k: 1}",
    "&b [*b]",
    "!!str 1",
    "!!binary SGk=",
    "!!binary SG",
    "!!int 1",
    "!x y",
    "!x",
    "\"\\/\\ \\\t\\u00e9\"",
    "\"\\q\"",
    "\"\\ud800\"",
    "\"a\n\n  b\"",
    "'a\nb'",
    "\"a\tb\"",
    "a\tb",
    "'MIME-Version: 1.0'",
    "-",
    "-a",
    "?a",
    ":a",
    ":",
    "a?",
    "[a?b]",
    "{a, b: c}",
    "{a: [b, c], 'd':e}",
    "[a: b, ? c]",
    "[a,\nb\n]",
    "{a\n: b}",
    "[!!str a, b]",
    "{? a, ? b : c}",
    "{*a : b}",
    "[a,,b]",
    "---",
    "...",
];
const HEADERS: &[&str] = &[
    "|", ">", "|-", "|+", ">-", ">+", "|2", "|1-", "|+3", "| # c\t", "|\t", "|#c",
];
const PIECES: &[&str] = &[
    "\t", "\n", "\r", "\r\n", " ", "  ", "\u{85}", "\u{2028}", "\u{a0}", "\u{feff}", "\u{7}", "\u{7f}", "\0",
    "é", "😀", ": ", ":", "- ", "-", "? ", "?", "#", " #", "\"", "'", "[", "]", "{", "}", ",", "|", ">",
    "&a ", "*a", "!!str ", "!", "%", "@", "`", "\\", "---\n", "...\n", "<<: ", "=", "\n\n", "0x_",
];

fn one<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(..of.len())]
}

/// Appends a value behind a key or a dash.
fn value(rng: &mut Rng, text: &mut String, indent: usize, depth: usize) {
    let pad = " ".repeat(indent);
    match rng.u8(..if depth == 0 { 12 } else { 20 }) {
        0..=7 => text.extend([" ", one(rng, WORDS), "\n"]),
        8 | 9 => text.extend([" ", one(rng, ODD), "\n"]),
        10 | 11 => {
            text.extend([" ", one(rng, HEADERS), "\n"]);
            for _ in 0..rng.usize(..4) {
                let line = one(
                    rng,
                    &["echo a", "  b: c", "\tx", "# d", "", " ", "- e\t", "{{ f }}"],
                );
                text.extend([pad.as_str(), "  ", line, "\n"]);
            }
        }
        12..=14 => {
            text.push('\n');
            mapping(rng, text, indent + 2, depth - 1);
        }
        _ => {
            text.push('\n');
            let indent = indent + 2 * rng.usize(..2);
            for _ in 0..=rng.usize(..3) {
                text.extend([" ".repeat(indent).as_str(), "-"]);
                value(rng, text, indent, depth - 1);
            }
        }
    }
}

/// Boot commands, as most users write them.
fn commands(rng: &mut Rng, text: &mut String, indent: usize) {
    if rng.u8(..4) == 0 {
        text.extend([" [", one(rng, WORDS), "]\n"]);
        return;
    }
    text.push('\n');
    for _ in 0..=rng.usize(..3) {
        text.extend([" ".repeat(indent).as_str(), "- ", one(rng, &WORDS[..3]), "\n"]);
    }
}

fn mapping(rng: &mut Rng, text: &mut String, indent: usize, depth: usize) {
    for _ in 0..=rng.usize(..4) {
        let key = if rng.u8(..3) == 0 {
            one(rng, KEYS)
        } else {
            one(rng, &KEYS[..7])
        };
        text.extend([" ".repeat(indent).as_str(), key, ":"]);
        if key.contains("bootcmd") && rng.u8(..4) > 0 {
            commands(rng, text, indent);
        } else {
            value(rng, text, indent, depth);
        }
        if rng.u8(..6) == 0 {
            *text += one(
                rng,
                &["# comment\n", "\n", "  # comment\twith a tab\n", "\t\n", "  \n"],
            );
        }
    }
}

/// Inserts a piece, or removes or repeats a few characters.
fn mutate(rng: &mut Rng, text: &mut String) {
    let places: Vec<usize> = text
        .char_indices()
        .map(|(at, _)| at)
        .skip("#cloud-config\n".len())
        .collect();
    if places.is_empty() {
        return;
    }
    let at = places[rng.usize(..places.len())];
    let end = places
        .iter()
        .copied()
        .find(|end| *end > at + rng.usize(..4))
        .unwrap_or(text.len());
    match rng.u8(..4) {
        0 | 1 => text.insert_str(at, one(rng, PIECES)),
        2 => text.replace_range(at..end, ""),
        _ => {
            let again = text[at..end].to_owned();
            text.insert_str(at, &again);
        }
    }
}

fn cloud_config(rng: &mut Rng) -> String {
    let mut text = "#cloud-config\n".to_owned();
    if rng.u8(..12) == 0 {
        text += one(
            rng,
            &[
                "---\n",
                "--- # c\n",
                "\n",
                "# c\n",
                "{a: b}\n",
                "- a\n",
                "%YAML 1.1\n---\n",
            ],
        );
    }
    if rng.u8(..4) == 0 {
        text += "x: &a bootcmd\ny: &b {k: 1}\n";
    }
    mapping(rng, &mut text, 0, 3);
    for _ in 0..rng.usize(..5).saturating_sub(1) {
        mutate(rng, &mut text);
    }
    if rng.u8(..4) == 0 {
        text.pop();
    }
    text
}

#[derive(Deserialize)]
struct Loaded {
    loads: bool,
    fault: Option<String>,
}

#[test]
fn tier2_cloud_init_loads_what_is_accepted() {
    let test = "tier2_cloud_init_loads_what_is_accepted";
    let Some((_, modules)) = skip::need(2, test, parts::cloud_init()).unwrap() else {
        return;
    };
    let mut rng = Rng::with_seed(SEED);
    let mut texts: Vec<String> = (0..3000).map(|_| cloud_config(&mut rng)).collect();
    texts.extend(CLOUD_CONFIGS.map(|text| format!("#cloud-config\n{text}")));
    texts.extend(ARCHIVES.map(|text| format!("#cloud-config-archive\n{text}")));
    // cloud-init's own.
    let examples = modules.join("../../../share/doc/cloud-init/examples");
    for entry in fs::read_dir(examples).unwrap() {
        let example = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        if example.starts_with("#cloud-config\n") {
            texts.push(example);
        }
    }
    assert!(texts.len() > 3020, "cloud-init's examples are missing");

    let payload = payload();
    let render = |with: &[With<'_>]| cloud_init::render(&payload, Form::CloudConfig, with, "# made\n");
    let outputs: Vec<Result<String, String>> = texts
        .iter()
        .map(|text| Ok(render(&[With { name: "theirs", text }])?.text))
        .collect();
    let cases: Vec<Value> = texts
        .iter()
        .zip(&outputs)
        .map(|(text, output)| json!({ "text": text, "output": output.as_ref().ok() }))
        .collect();
    // Debian's python3, whose packages the modules need.
    let results = Launch::new("/usr/bin/python3")
        .env("PYTHONPATH", &modules)
        .args(["-c", include_str!("loaded.py")])
        .stdin(json!({ "alone": render(&[]).unwrap().text, "cases": cases }).to_string())
        .text(TIMEOUT)
        .unwrap();
    let results: Vec<Loaded> = serde_json::from_str(&results).unwrap();
    assert_eq!(results.len(), texts.len());

    let mut faults = Vec::new();
    let (mut spliced, mut accepted, mut refused) = (0, 0, 0);
    for ((text, output), result) in texts.iter().zip(&outputs).zip(results) {
        match output {
            Ok(output) => {
                accepted += 1;
                spliced += usize::from(output.starts_with("#cloud-config\n"));
                if let Some(fault) = result.fault {
                    faults.push(format!("accepted: {text:?}\n  {fault}"));
                }
            }
            Err(why) if result.loads && !why.contains(": virtfleetctl does not support ") => {
                faults.push(format!("refused: {text:?}\n  {why}"));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    let counts = format!("{spliced} spliced, {accepted} accepted, {refused} refused");
    assert!(
        spliced > 400 && accepted > spliced + 100 && refused > 1500,
        "{counts}"
    );
}

// Configs for Ignition.

const PATHS: &[&str] = &[
    "/a",
    "/a/b",
    "/c",
    "/c/",
    "/c//d",
    "e",
    "/etc/virtfleet",
    "/etc/virtfleet/agent.d",
    "/var/lib/virtfleet",
    "/etc/virtfleet/agent.d/50-delivery.yaml",
    "/opt",
    "/",
    "/f",
    "/g",
    "/h/i",
    "/etc/systemd/system/virtfleet-delivery.service",
    "/etc/systemd/system/kubelet.service.d",
    "/j",
];

/// One of the paths that may be refused, or another one.
fn path(rng: &mut Rng) -> String {
    if rng.u8(..3) == 0 {
        one(rng, PATHS).to_owned()
    } else {
        format!("/k/{}", rng.u16(..))
    }
}

/// A config.
fn config(rng: &mut Rng) -> Value {
    let versions = [
        "3.0.0", "3.0.0", "3.1.0", "3.1.0", "3.2.0", "3.2.0", "3.3.0", "3.3.0", "3.4.0", "3.1.1", "3.3",
        "2.3.0",
    ];
    let mut storage = json!({});
    for kind in ["files", "directories", "links"] {
        let entries = (0..rng.usize(..3)).map(|_| match kind {
            "links" if rng.u8(..6) > 0 => json!({"path": path(rng), "target": "/t"}),
            _ => json!({"path": path(rng)}),
        });
        storage[kind] = entries.collect();
    }
    let names = [
        "kubelet.service",
        "kubelet.service",
        "containerd.service",
        "virtfleet-delivery.service",
        "a.service",
    ];
    let units = (0..rng.usize(..3)).map(|_| {
        let drop_ins: Vec<Value> = (0..rng.usize(..3))
            .map(|_| json!({"name": one(rng, &["10-a.conf", "20-virtfleet-delivery.conf", "30-b.conf"])}))
            .collect();
        json!({"name": one(rng, &names), "enabled": true, "dropins": drop_ins})
    });
    let units: Vec<Value> = units.collect();
    json!({
        "ignition": {"version": one(rng, &versions)},
        "storage": if rng.u8(..10) == 0 { Value::Null } else { storage },
        "systemd": {"units": units},
    })
}

/// The errors of `ignition-validate`.
fn validate(path: &Path, config: &Value) -> Option<String> {
    fs::write(path, config.to_string()).unwrap();
    let output = Launch::new("ignition-validate")
        .arg(path)
        .output(TIMEOUT)
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    (!output.status.success()).then(|| said.into_owned())
}

#[test]
fn tier2_ignition_accepts_what_is_accepted() {
    let test = "tier2_ignition_accepts_what_is_accepted";
    let Some(()) = skip::need(2, test, program("ignition-validate")).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.ign");
    // Spec 3.4.0 is newer than Debian's Ignition.
    let newest = json!({"ignition": {"version": "3.4.0"}});
    let knows_newest = validate(&path, &newest).is_none();
    let payload = payload();
    let mut rng = Rng::with_seed(SEED);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..400 {
        let theirs = config(&mut rng);
        let version = theirs["ignition"]["version"].as_str().unwrap();
        if !knows_newest && version == "3.4.0" {
            continue;
        }
        match ignition::render(&payload, Some(&theirs.to_string())) {
            // Links without a target, for example, are errors of theirs.
            Ok(merged) => {
                accepted += 1;
                if let Some(errors) = validate(&path, &merged) {
                    assert!(validate(&path, &theirs).is_some(), "{theirs} merged: {errors}");
                    assert!(errors.contains("link target is required"), "{theirs}: {errors}");
                }
            }
            Err(why) if validate(&path, &theirs).is_none() => {
                refused += 1;
                let script = why.contains("/var/lib/virtfleet/delivery/deliver");
                let ours = script || payload.files.iter().any(|file| why.contains(&file.path));
                let unit = why.contains("virtfleet-delivery.");
                let below_file = why.contains("storage.files already has") && why.contains("is below it");
                assert!(ours || unit || below_file, "{theirs}: {why}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        accepted > 70 && refused > 150,
        "{accepted} accepted, {refused} refused"
    );
}

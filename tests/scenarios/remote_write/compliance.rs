//! Prometheus' compliance tests for senders, run as they are from a copy of
//! github.com/prometheus/compliance.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{bins, parts, process::Launch, skip};

const TIER: u8 = 3;

/// The tests run for 8 to 20 seconds each, 16 at a time.
const DEADLINE: Duration = Duration::from_mins(25);

/// Makes this project's sender one of the senders under test.
const TARGET: &str = r#"package targets

import "os"

func RunVirtfleet(opts TargetOptions) error {
	return runCommand(os.Getenv("VIRTFLEET_SENDER"), opts.Timeout,
		"--scrape="+opts.ScrapeTarget, "--endpoint="+opts.ReceiveEndpoint)
}
"#;

/// Cases that this sender does not pass, and why. None has the level MUST or SHOULD.
const KNOWN: &[&str] = &[
    // Exemplars (level MAY): the pages of guests, format 0.0.4, have none.
    "TestCombinedFeatures/histogram_with_metadata_and_exemplars",
    "TestCombinedFeatures/samples_with_exemplars",
    // Level RECOMMENDED. The case writes the values from 10 on as single characters, such as ":",
    // so that 40 of the 50 lines of its page are malformed.
    "TestEdgeCases/high_cardinality",
];

/// Copies the folder of the module, which has one folder below it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[test]
fn tier3_the_sender_passes_prometheus_compliance_tests() {
    let test = "tier3_the_sender_passes_prometheus_compliance_tests";
    if skip::deferred(TIER, test, "make compliance") {
        return;
    }
    let module = parts::compliance().and_then(|module| Ok((module, skip::program("go")?)));
    let Some((module, go)) = skip::need(TIER, test, module).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("sender");
    copy(&module, &copied).unwrap();
    fs::write(copied.join("targets/virtfleet.go"), TARGET).unwrap();
    let main = copied.join("main_test.go");
    let source = fs::read_to_string(&main).unwrap();
    let known = "\"prometheus\": targets.RunPrometheus,";
    assert!(source.contains(known), "the list of senders has another form");
    let both = format!("{known}\n\t\t\"virtfleet\": targets.RunVirtfleet,");
    fs::write(&main, source.replace(known, &both)).unwrap();
    let output = Launch::new(go)
        .args(["-C", &copied.display().to_string()])
        .args(["test", "-json", "-parallel", "16", "-timeout", "24m", "./..."])
        .env("VIRTFLEET_SENDER", bins::remote_write_sender().unwrap())
        .env("PROMETHEUS_RW2_COMPLIANCE_SENDERS", "virtfleet")
        .output(DEADLINE)
        .unwrap();
    verdict(&String::from_utf8_lossy(&output.stdout)).unwrap();
}

/// Counts the test cases, which are the deepest tests, and fails with the output of all if others
/// fail than those that are known.
fn verdict(text: &str) -> Result<()> {
    let (mut passed, mut failed) = (0, BTreeSet::new());
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).with_context(|| format!("go test: {line}"))?;
        let Some(name) = event["Test"]
            .as_str()
            .and_then(|name| name.strip_suffix("/virtfleet"))
        else {
            continue;
        };
        match event["Action"].as_str() {
            Some("pass") => passed += 1,
            Some("fail" | "skip") => drop(failed.insert(name.to_owned())),
            _ => {}
        }
    }
    println!("{passed} cases passed, {} did not", failed.len());
    let known: BTreeSet<String> = KNOWN.iter().map(|&name| name.to_owned()).collect();
    ensure!(failed == known, "these cases did not pass: {failed:#?}\n{text}");
    ensure!(passed >= 140, "only {passed} cases ran:\n{text}");
    Ok(())
}

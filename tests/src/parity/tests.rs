//! Tests of the comparison, with small pages.

use super::*;
use crate::parity::{
    allowed::{Allowed, MACHINE, Only},
    judge,
};

fn page(text: &str) -> Page {
    Page::read(text).unwrap()
}

fn round(before: &str, ours: &str, after: &str) -> Round {
    Round {
        before: page(before),
        ours: page(ours),
        after: page(after),
    }
}

fn counter(value: &str) -> String {
    format!("# HELP node_a_total A.\n# TYPE node_a_total counter\nnode_a_total{{cpu=\"0\"}} {value}\n")
}

fn gauge(value: &str) -> String {
    format!("# TYPE node_g gauge\nnode_g {value}\n")
}

fn kinds(rounds: &[Round]) -> Vec<(What, String)> {
    let found = compare(rounds, true).into_iter();
    found.map(|found| (found.what, found.family)).collect()
}

#[test]
fn equal_pages_do_not_differ_and_what_is_theirs_alone_is_passed_over() {
    let theirs = counter("1") + "# TYPE go_threads gauge\ngo_threads 7\n";
    assert_eq!(
        kinds(&[round(&theirs, &counter("1"), &theirs)]),
        Vec::<(What, String)>::new()
    );
    assert_eq!(extent(&[round(&theirs, "", &theirs)]), (1, 1));
}

#[test]
fn a_family_that_is_not_there_and_one_of_another_type_are_said() {
    let found = kinds(&[round(&counter("1"), "", &counter("1"))]);
    assert_eq!(found, [(What::Missing, "node_a_total".to_owned())]);
    let untyped = counter("1").replace(" counter", " untyped");
    let found = kinds(&[round(&counter("1"), &untyped, &counter("1"))]);
    assert_eq!(found, [(What::Type, "node_a_total".to_owned())]);
}

#[test]
fn counters_lie_between_and_one_good_round_is_enough() {
    assert!(kinds(&[round(&counter("10"), &counter("12"), &counter("12"))]).is_empty());
    let late = round(&counter("10"), &counter("13"), &counter("12"));
    let found = compare(std::slice::from_ref(&late), true);
    assert_eq!(
        (found[0].what, found[0].detail.as_str()),
        (What::Value, "node_a_total{cpu=\"0\"}: ours 13, theirs 10 and 12")
    );
    let good = round(&counter("20"), &counter("21"), &counter("22"));
    assert!(kinds(&[late, good]).is_empty());
}

#[test]
fn free_space_is_of_the_machine_whatever_roots_are_read() {
    let free =
        |family: &str, value: u32| format!("# TYPE {family} gauge\n{family}{{mountpoint=\"/\"}} {value}\n");
    for (family, differences) in [("node_filesystem_files_free", 0), ("node_filesystem_files", 1)] {
        let page = |value| free(family, value);
        let good = || round(&page(7), &page(7), &page(7));
        let rounds = [good(), round(&page(7), &page(8), &page(7)), good()];
        assert_eq!(compare(&rounds, false).len(), differences, "{family}");
    }
}

#[test]
fn static_values_are_equal_and_gauges_have_the_slack_that_they_move_by() {
    assert_eq!(
        kinds(&[round(&gauge("100"), &gauge("101"), &gauge("100"))]).len(),
        1
    );
    assert!(kinds(&[round(&gauge("0.1"), &gauge("0.10000000000000002"), &gauge("0.1"))]).is_empty());
    assert!(kinds(&[round(&gauge("100"), &gauge("103"), &gauge("101"))]).is_empty());
    assert_eq!(
        kinds(&[round(&gauge("100"), &gauge("150"), &gauge("101"))]).len(),
        1
    );
    assert!(kinds(&[round(&gauge("NaN"), &gauge("NaN"), &gauge("NaN"))]).is_empty());
    assert_eq!(kinds(&[round(&gauge("1"), &gauge("NaN"), &gauge("1"))]).len(), 1);
    assert_eq!(
        kinds(&[round(&gauge("NaN"), &gauge("1"), &gauge("NaN"))]).len(),
        1
    );
    assert!(kinds(&[round(&gauge("+Inf"), &gauge("+Inf"), &gauge("+Inf"))]).is_empty());
    assert_eq!(
        kinds(&[round(&gauge("+Inf"), &gauge("1"), &gauge("+Inf"))]).len(),
        1
    );
}

#[test]
fn what_does_not_move_is_equal_in_every_round() {
    let good = || round(&gauge("100"), &gauge("100"), &gauge("100"));
    let bad = || round(&gauge("100"), &gauge("101"), &gauge("100"));
    let differ = |rounds: &[Round], live| compare(rounds, live).len();
    assert_eq!(differ(&[good(), bad(), good()], false), 1);
    // One change of the machine meanwhile is tolerated; an error in every second round is not.
    assert_eq!(differ(&[good(), bad(), good()], true), 0);
    assert_eq!(differ(&[good(), bad(), good(), bad()], true), 1);
    assert_eq!(differ(&[bad()], true), 1);
    let same = || round(&counter("7"), &counter("7"), &counter("7"));
    let less = round(&counter("7"), &counter("6"), &counter("7"));
    assert_eq!(differ(&[same(), less, same()], true), 1);
}

#[test]
fn an_entry_counts_where_it_was_made_for_and_is_needed_there() {
    static LIST: &[Allowed] = &[Allowed::new("node_g", What::Value, &["one"], "because")];
    let bad = || [round(&gauge("1"), &gauge("2"), &gauge("1"))];
    let good = [round(&gauge("1"), &gauge("1"), &gauge("1"))];
    let numbers = |verdict: crate::parity::Verdict| {
        (
            verdict.unexplained.len(),
            verdict.explained.len(),
            verdict.idle.len(),
        )
    };
    assert_eq!(numbers(judge(&bad(), LIST, "one")), (0, 1, 0));
    assert_eq!(numbers(judge(&bad(), LIST, "two")), (1, 0, 0));
    assert_eq!(numbers(judge(&good, LIST, "one")), (0, 0, 1));
    assert_eq!(numbers(judge(&good, LIST, "two")), (0, 0, 0));
}

#[test]
fn series_that_come_or_go_during_a_round_prove_nothing() {
    let with = counter("1") + "node_a_total{cpu=\"1\"} 1\n";
    assert!(kinds(&[round(&with, &counter("1"), &counter("1"))]).is_empty());
    assert!(kinds(&[round(&counter("1"), &with, &with)]).is_empty());
    let found = compare(&[round(&with, &counter("1"), &with)], true);
    assert_eq!((found[0].what, found[0].theirs.len()), (What::Labels, 1));
    let found = compare(&[round(&counter("1"), &with, &counter("1"))], true);
    assert_eq!((found[0].what, found[0].ours.len()), (What::Labels, 1));
    // A series that was not on all of node_exporter's pages may have been absent when the agent
    // read it.
    let rounds = [
        round(&with, &counter("1"), &with),
        round(&with, &with, &with),
        round(&counter("1"), &counter("1"), &counter("1")),
    ];
    assert!(compare(&rounds, false).is_empty());
}

#[test]
fn what_is_in_all_pages_of_theirs_is_in_all_of_ours() {
    let less = counter("1");
    let with = less.clone() + "node_a_total{cpu=\"1\"} 1\n";
    let good = || round(&with, &with, &with);
    let differ = |bad: &Round, live, goods: usize| {
        let mut rounds = vec![good(); goods];
        rounds.insert(goods / 2, bad.clone());
        let found = compare(&rounds, live).into_iter();
        found.map(|found| found.what).collect::<Vec<_>>()
    };
    let series = round(&with, &less, &with);
    let family = round(&with, "", &with);
    let extra = round(&with, &(with.clone() + "node_a_total{cpu=\"2\"} 1\n"), &with);
    for (bad, what) in [
        (series, What::Labels),
        (family, What::Missing),
        (extra, What::Labels),
    ] {
        // A machine that changes meanwhile may have had a different value briefly, but not in every
        // second round.
        assert_eq!(differ(&bad, false, 7), [what]);
        assert_eq!(differ(&bad, true, 2), []);
        assert_eq!(differ(&bad, true, 1), [what]);
        let mostly = [bad.clone(), good(), bad.clone(), bad.clone()];
        assert_eq!(compare(&mostly, true).len(), 1);
    }
}

#[test]
fn an_entry_explains_its_family_its_kind_and_its_label_alone() {
    static LIST: &[Allowed] = &[
        Allowed::new("node_g", What::Value, &[MACHINE, "other"], "because"),
        Allowed::new("node_a_total", What::Labels, &[MACHINE], "because").only(Only::Labels(&["cpu"])),
        Allowed::new("node_b_*", What::Labels, &[MACHINE], "because").only(Only::Starts("cpu", &["7"])),
    ];
    let verdict = judge(&[round(&gauge("1"), &gauge("2"), &gauge("1"))], LIST, MACHINE);
    assert_eq!((verdict.unexplained.len(), verdict.explained.len()), (0, 1));
    let verdict = judge(&[round(&gauge("1"), "", &gauge("1"))], LIST, MACHINE);
    assert_eq!((verdict.unexplained.len(), verdict.explained.len()), (1, 0));
    let other = counter("1").replace("\"0\"", "\"7\"");
    let verdict = judge(&[round(&counter("1"), &other, &counter("1"))], LIST, MACHINE);
    assert_eq!((verdict.unexplained.len(), verdict.explained.len()), (0, 1));
    let other = other.replace('}', ",core=\"1\"}");
    let verdict = judge(&[round(&counter("1"), &other, &counter("1"))], LIST, MACHINE);
    assert_eq!((verdict.unexplained.len(), verdict.explained.len()), (1, 0));
    let seven = "# TYPE node_b_x gauge\nnode_b_x{cpu=\"7a\"} 1\n";
    let verdict = judge(
        &[round("# TYPE node_b_x gauge\n", seven, "# TYPE node_b_x gauge\n")],
        LIST,
        MACHINE,
    );
    assert_eq!((verdict.unexplained.len(), verdict.explained.len()), (0, 1));
    let eight = seven.replace('7', "8");
    let verdict = judge(
        &[round(
            "# TYPE node_b_x gauge\n",
            &eight,
            "# TYPE node_b_x gauge\n",
        )],
        LIST,
        MACHINE,
    );
    assert_eq!((verdict.unexplained.len(), verdict.explained.len()), (1, 0));
    assert!(verdict.to_string().contains("1 differences"), "{verdict}");
}

#[test]
fn notes_say_what_only_ours_has() {
    let found = notes(&[round("", &gauge("1"), "")]);
    assert_eq!(found, ["families that only ours has: node_g"]);
    assert!(notes(&[round(&gauge("1"), &gauge("1"), &gauge("1"))]).is_empty());
}

#[test]
fn the_build_must_be_said_in_whatever_words() {
    let build = |version: &str| {
        format!("# TYPE node_exporter_build_info gauge\nnode_exporter_build_info{{version={version:?}}} 1\n")
    };
    assert!(kinds(&[round(&build("1"), &build("2"), &build("1"))]).is_empty());
    let found = kinds(&[round(&build("1"), "", &build("1"))]);
    assert_eq!(found, [(What::Missing, "node_exporter_build_info".to_owned())]);
}

#[test]
fn a_sample_outside_its_family_is_refused() {
    Page::read("# TYPE node_g gauge\nother 1\n").unwrap_err();
    Page::read("other 1\n").unwrap_err();
}

use super::*;

/// A page with this number of series.
fn page(series: usize) -> String {
    let lines: Vec<_> = (0..series).map(|n| format!("a{{n=\"{n}\"}} 1\n")).collect();
    lines.concat()
}

fn limited(per_vm: usize, all: usize) -> Stage {
    let mut stage = Stage::new("[]");
    stage.stream.set_limits(SeriesLimits { per_vm, all });
    stage
}

#[test]
fn a_page_over_the_limit_of_a_vm_is_dropped_as_a_whole() {
    let mut stage = limited(3, usize::MAX);
    let (one, two) = (vm("one"), vm("two"));
    assert_eq!(stage.page(&one, ["n1", ""], &page(3)).exceeded, None);
    assert_eq!(stage.page(&two, ["n2", ""], &page(3)).exceeded, None);
    for stale in [3, 0] {
        let result = stage.page(&one, ["n1", ""], &page(4));
        assert_eq!(result.exceeded, Some(ExceededLimit::PerVm(3)));
        assert_eq!((result.over_limit, result.stale, result.written), (4, stale, 5));
        assert!(stage.receiver.value("up").abs() < f64::EPSILON);
        // The other VM goes on.
        assert_eq!(stage.page(&two, ["n2", ""], &page(3)).written, 3 + 5);
        assert_eq!(stage.receiver.live().len(), 3);
    }
    // What the rules drop does not count.
    let drop_one = r#"[{"sourceLabels":["n"],"regex":"0","action":"drop"}]"#;
    stage.stream.configure(stamp(), rules(drop_one));
    let result = stage.page(&one, ["n1", ""], &page(4));
    assert_eq!((result.exceeded, result.written), (None, 3 + 5));
}

#[test]
fn a_page_over_the_limit_of_the_stream_costs_its_vm_alone() {
    let mut stage = limited(usize::MAX, 5);
    let (one, two) = (vm("one"), vm("two"));
    stage.page(&one, ["n1", ""], &page(3));
    assert_eq!(stage.page(&two, ["n2", ""], &page(2)).exceeded, None);
    for _ in 0..2 {
        let result = stage.page(&two, ["n2", ""], &page(3));
        assert_eq!(result.exceeded, Some(ExceededLimit::All(5)));
        assert_eq!(stage.page(&one, ["n1", ""], &page(3)).exceeded, None);
    }
    assert_eq!(stage.page(&two, ["n2", ""], &page(2)).exceeded, None);
    // With a lower limit, pages are dropped until the others fit.
    stage.stream.configure(stamp(), rules("[]"));
    stage.stream.set_limits(SeriesLimits {
        all: 2,
        ..SeriesLimits::default()
    });
    assert!(stage.page(&one, ["n1", ""], &page(3)).exceeded.is_some());
    assert_eq!(stage.page(&two, ["n2", ""], &page(2)).exceeded, None);
    // Series about the pull, and those of the platform, are always written.
    assert_eq!(stage.failed(&one, ["n1", ""]).written, 5);
    let platform = stage.page(&SourceKey::Platform, ["", ""], &page(4));
    assert_eq!((platform.exceeded, platform.written), (None, 4));
    // The rest of a page over a limit is not evaluated.
    let symbols = |stage: &Stage| stage.stream.generations[&stage.stream.current].symbols.cost();
    let before = symbols(&stage);
    stage.page(&one, ["n1", ""], &page(50));
    assert!(symbols(&stage) < before + 10, "{} of {before}", symbols(&stage));
    // A VM that has gone makes room.
    assert!(stage.page(&one, ["n1", ""], &page(1)).exceeded.is_some());
    stage.gone(&two);
    assert_eq!(stage.page(&one, ["n1", ""], &page(2)).exceeded, None);
    stage.stream.forget();
    assert_eq!(stage.stream.kept, 0);
}

/// A page of 100 series with 20 labels each, of which no other page has the values.
fn churning(page: usize) -> String {
    let labels = |series: usize| -> String {
        let labels = (0..20).map(|label| format!("l{label}=\"{page}-{series}-{label}\""));
        labels.collect::<Vec<_>>().join(",")
    };
    let lines: Vec<_> = (0..100)
        .map(|series| format!("a{{{}}} 1\n", labels(series)))
        .collect();
    lines.concat()
}

/// What the symbols of each generation cost.
fn sizes(stage: &Stage) -> Vec<usize> {
    let generations = stage.stream.generations.values();
    generations.map(|one| one.symbols.cost()).collect()
}

#[test]
fn new_label_values_of_a_vm_cost_the_others_no_evaluation() {
    let mut stage = Stage::new("[]");
    let (one, other) = (vm("one"), vm("other"));
    stage.page(&other, ["n2", ""], &page(50));
    let shared = stage.stream.current;
    for number in 0..50 {
        let result = stage.page(&one, ["n1", ""], &churning(number));
        let gone = if number == 0 { 0 } else { 100 };
        assert_eq!((result.written, result.added, result.stale), (105, 100, gone));
    }
    assert_eq!(stage.stream.current, shared, "it was not renewed");
    let found = sizes(&stage);
    assert!(
        found.len() == 2 && found.iter().all(|size| *size < 5000),
        "{found:?}"
    );
    // A page with the same series is not evaluated again, and other rules are used.
    let last = stage.stream.sources[&one].page.generation;
    assert_eq!(stage.page(&one, ["n1", ""], &churning(49)).stale, 0);
    assert_eq!(stage.stream.sources[&one].page.generation, last);
    stage
        .stream
        .configure(stamp(), rules(r#"[{"regex":"l1.*","action":"labeldrop"}]"#));
    let result = stage.page(&one, ["n1", ""], &churning(49));
    assert_eq!((result.written, result.stale), (105, 100));
    assert_eq!(stage.page(&other, ["n2", ""], &page(50)).stale, 0);
    assert_eq!(stage.receiver.live().len(), 150);
    stage.gone(&one);
    assert_eq!((sizes(&stage).len(), stage.receiver.live().len()), (1, 50));
}

#[test]
fn long_label_values_count_more() {
    let mut stage = Stage::new("[]");
    let long = "x".repeat(900);
    for number in 0..10 {
        let lines: Vec<_> = (0..100)
            .map(|series| format!("a{{l=\"{number}-{series}-{long}\"}} 1\n"))
            .collect();
        let result = stage.page(&vm("one"), ["n1", ""], &lines.concat());
        assert_eq!((result.written, result.added), (105, 100));
    }
    let found = sizes(&stage);
    assert!(found.iter().all(|size| *size < 5000), "{found:?}");
}

#[test]
fn new_label_values_of_pages_over_a_limit_are_not_kept() {
    let mut stage = limited(3, usize::MAX);
    let one = vm("one");
    stage.page(&one, ["n1", ""], &page(3));
    for number in 0..100 {
        let result = stage.page(&one, ["n1", ""], &churning(number));
        assert!(result.exceeded.is_some());
    }
    let found = sizes(&stage);
    assert!(found.len() == 1 && found[0] < 5000, "{found:?}");
}

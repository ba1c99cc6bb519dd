use super::*;

fn read(table: &Arc<TableShare>, text: &str, last: PageSeries) -> Result<GuestPage, String> {
    let mut reader = PageReader::new(Arc::clone(table), SampleLimits::new(20), last);
    for line in text.lines() {
        reader.read(line).unwrap();
    }
    reader.finish()
}

fn none() -> PageSeries {
    PageSeries::default()
}

/// Text, type and help text of each series.
fn series(page: &GuestPage) -> Vec<(String, Option<MetricType>, String)> {
    let mut all = Vec::new();
    page.series
        .each(|text, meta| all.push((text.to_owned(), meta.kind(), meta.help().to_owned())));
    all
}

fn texts(page: &GuestPage) -> Vec<String> {
    series(page).into_iter().map(|(text, _, _)| text).collect()
}

const PAGE: &str = "# HELP a A.\n# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 2\n# TYPE h histogram\n\
    h_bucket{le=\"1\"} 3\nh_sum 4\nh_count 5\nb 6\nvirtfleet_vm_up 1\nup 0\nc{__replica__=\"x\"} 1\n";

#[test]
fn an_unchanged_page_shares_the_series_of_the_last_one() {
    let table = Arc::default();
    let first = read(&table, PAGE, none()).unwrap();
    assert_eq!(
        texts(&first),
        [
            "a{x=\"1\"}",
            "a{x=\"2\"}",
            "h_bucket{le=\"1\"}",
            "h_sum",
            "h_count",
            "b"
        ]
    );
    assert_eq!((first.samples, first.withheld), (9, 3));
    assert_eq!(first.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let kinds: Vec<_> = series(&first).into_iter().map(|(_, kind, _)| kind).collect();
    let (counter, histogram) = (Some(MetricType::Counter), Some(MetricType::Histogram));
    assert_eq!(kinds, [counter, counter, histogram, histogram, histogram, None]);
    assert_eq!((&*series(&first)[0].2, &*series(&first)[3].2), ("A.", ""));
    let second = read(&table, &PAGE.replace("} 1", "} 9"), first.series()).unwrap();
    assert!(Arc::ptr_eq(&first.series, &second.series));
    assert!((second.values[0] - 9.0).abs() < f64::EPSILON);
    // Read without the last page, it has the same series.
    let third = read(&table, PAGE, none()).unwrap();
    assert!(first.series.is_same(&third.series));
}

#[test]
fn a_changed_page_has_its_own_series() {
    let table = Arc::default();
    let first = read(&table, PAGE, none()).unwrap();
    for (from, to) in [
        ("a{x=\"1\"} 1\n", ""),
        ("b 6\n", ""),
        ("b 6\n", "b 6\nz 1\n"),
        ("a{x=\"2\"} 2\n", "n 1\na{x=\"2\"} 2\n"),
        ("# HELP a A.", "# HELP a B."),
        ("h histogram", "h summary"),
        ("# TYPE h histogram\n", ""),
        (PAGE, "q 1\n"),
        (PAGE, ""),
    ] {
        let text = PAGE.replace(from, to);
        let hinted = read(&table, &text, first.series()).unwrap();
        let plain = read(&table, &text, none()).unwrap();
        assert!(hinted.series.is_same(&plain.series), "{to:?}");
        assert_eq!(hinted.values, plain.values, "{to:?}");
        assert!(!hinted.series.is_same(&first.series), "{to:?}");
    }
}

#[test]
fn a_changed_page_names_the_series_that_remain() {
    let table = Arc::default();
    let first = read(&table, "a 1\nb 2\nc 3\nd 4\n", none()).unwrap();
    let second = read(&table, "a 1\nc 3\nx 5\nd 4\nb 2\n", first.series()).unwrap();
    assert_eq!(texts(&second), ["a", "c", "x", "d", "b"]);
    let origins = second.origins.unwrap();
    assert!(Arc::ptr_eq(&origins.last, &first.series));
    assert_eq!(origins.indices, [0, 2, NO_ORIGIN, 3, NO_ORIGIN]);
    let cut = read(&table, "a 1\nb 2\n", first.series()).unwrap();
    assert_eq!((texts(&cut).len(), cut.values.len()), (2, 2));
}

#[test]
fn a_page_over_a_limit_is_rejected_as_a_whole() {
    let table = Arc::default();
    let error = |text: &str| read(&table, text, none()).unwrap_err();
    assert!(error(&"a 1\n".repeat(21)).contains("more than 20 samples"));
    assert!(error("a 1\na{x=\"1\",x=\"2\"} 1\n").contains("twice"));
    let long = format!("a{{l=\"{}\"}} 1\n", "x".repeat(1025));
    assert!(error(&long).contains("in its value"), "{}", error(&long));
    let help = format!("# HELP a {}\n# TYPE a gauge\na 1\n", "é".repeat(1000));
    let page = read(&table, &help, none()).unwrap();
    assert_eq!(series(&page)[0].2.len(), 1024);
}

//! The query `?collect[]=…&exclude[]=…`, compatible with node_exporter.

use virtfleet_agent_core::scrape_filter::Filter;

/// Parses the query of `/metrics`. Like node_exporter, it ignores other parameters.
pub fn filter(query: Option<&str>) -> Filter {
    let mut filter = Filter::default();
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value);
        match decode(key).as_str() {
            "collect[]" => filter.collect.push(value),
            "exclude[]" => filter.exclude.push(value),
            _ => {}
        }
    }
    filter
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_brackets_are_read() {
        let filter = filter(Some(
            "collect[]=cpu&collect%5B%5D=meminfo&x=y&exclude[]=os&bad%zz",
        ));
        assert_eq!(filter.collect, ["cpu", "meminfo"]);
        assert_eq!(filter.exclude, ["os"]);
    }

    #[test]
    fn no_query_is_no_filter() {
        let none = filter(None);
        assert!(none.collect.is_empty() && none.exclude.is_empty());
    }
}

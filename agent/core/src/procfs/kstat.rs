//! ZFS' kstats below `/proc/spl/kstat/zfs` (OpenZFS: `module/os/linux/spl/spl-kstat.c`).

use super::{ParseError, words};

/// Parses the 64-bit numbers in a named kstat, e.g. `arcstats`, as name and value.
pub fn named(text: &str) -> impl Iterator<Item = Result<(&str, f64), ParseError>> {
    let mut heading = false;
    let mut lines = text.lines().enumerate();
    let mut ended = false;
    std::iter::from_fn(move || {
        loop {
            let Some((index, line)) = lines.next() else {
                let nothing = !heading && !ended;
                ended = true;
                return nothing.then(|| Err(ParseError::at(0, "the heading `name type data`", text)));
            };
            let mut words = words(line);
            let (name, kind, data) = (words.next(), words.next(), words.next());
            let (Some(name), Some(kind), Some(data)) = (name, kind, data) else {
                continue;
            };
            if !heading {
                heading = (name, kind, data) == ("name", "type", "data");
                continue;
            }
            // KSTAT_DATA_INT64 and KSTAT_DATA_UINT64; the others are texts and small numbers, which
            // are not needed.
            let value = match kind {
                "3" => data.parse::<i64>().ok().map(|value| value as f64),
                "4" => data.parse::<u64>().ok().map(|value| value as f64),
                _ => continue,
            };
            let value = value.ok_or_else(|| ParseError::at(index, "a statistic of 64 bits", data));
            return Some(value.map(|value| (name, value)));
        }
    })
}

/// Parses the counters of a pool's `io` as name and value.
pub fn pool_io(text: &str) -> impl Iterator<Item = Result<(&str, u64), ParseError>> {
    let mut lines = text.lines().enumerate();
    let names = lines
        .find(|(_, line)| line.starts_with("nread"))
        .map(|(_, line)| line);
    let (index, values) = lines.next().unwrap_or_default();
    let mut values = words(values);
    words(names.unwrap_or_default()).map(move |name| {
        let value = values.next().unwrap_or_default();
        let value = value
            .parse()
            .map_err(|_| ParseError::at(index, "a counter under each heading", value))?;
        Ok((name, value))
    })
}

/// Returns the name of the dataset of a kstat (`objset-0x…`), which is otherwise parsed with
/// [`named`]. `None` if it has no name.
pub fn dataset_name(text: &str) -> Option<&str> {
    let line = text.lines().find_map(|line| line.strip_prefix("dataset_name "))?;
    // KSTAT_DATA_STRING; a name may contain spaces.
    let name = line.trim_start().strip_prefix("7 ")?.trim_start();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "5 1 0x01 91 4368 5266997922 97951858082072\nname                            type data\n\
        hits                            4    8772612\nmemory_available_bytes          3    -922337203685477580\n\
        name                            7    tank\n";
    const IO: &str = "12 3 0x00 1 80 79205351707403 395818011156865\n\
        nread    nwritten reads    writes\n1884160  3206144  22       132\n";

    #[test]
    fn statistics_by_name() {
        let all: Vec<_> = named(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            all,
            [
                ("hits", 8_772_612.0),
                ("memory_available_bytes", -922_337_203_685_477_580.0)
            ]
        );
        let error = named("nothing\n").collect::<Result<Vec<_>, _>>().unwrap_err();
        assert_eq!(error.expected, "the heading `name type data`");
        let error = named("name type data\nhits 4 -1\n").collect::<Result<Vec<_>, _>>();
        assert_eq!(error.unwrap_err().line, 2);
    }

    #[test]
    fn pool_counters() {
        let all: Vec<_> = pool_io(IO).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            all,
            [
                ("nread", 1_884_160),
                ("nwritten", 3_206_144),
                ("reads", 22),
                ("writes", 132)
            ]
        );
        assert_eq!(pool_io("").count(), 0);
        assert!(pool_io("nread reads\n1\n").any(|counter| counter.is_err()));
    }

    #[test]
    fn dataset_names() {
        let text =
            |name: &str| format!("name type data\ndataset_name                    7    {name}\nwrites 4 1\n");
        assert_eq!(dataset_name(&text("tank/my data")), Some("tank/my data"));
        assert_eq!(dataset_name(&text("7")), Some("7"));
        assert_eq!(dataset_name(&text("")), None);
        assert_eq!(dataset_name(SAMPLE), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE), io in hostile::text(IO)) {
            let _ = dataset_name(&text);
            let _ = named(&text).count() + pool_io(&io).count();
        }
    }
}

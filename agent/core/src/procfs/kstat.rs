//! ZFS' kstats below `/proc/spl/kstat/zfs` (OpenZFS: `module/os/linux/spl/spl-kstat.c`).

use super::{ParseError, integer, words};

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
            let Some(name) = name else { continue };
            if !heading {
                heading = (name, kind, data) == ("name", Some("type"), Some("data"));
                continue;
            }
            // KSTAT_DATA_INT64 and KSTAT_DATA_UINT64; the others are texts, which may be empty, and
            // small numbers, which are not needed.
            let data = data.unwrap_or_default();
            let value = match kind {
                Some("3") => data.parse::<i64>().ok().map(|value| value as f64),
                Some("4") => data.parse::<u64>().ok().map(|value| value as f64),
                Some(kind) if kind.parse::<u8>().is_ok() => continue,
                _ => None,
            };
            let value = value.ok_or_else(|| ParseError::at(index, "a statistic of 64 bits", line));
            return Some(value.map(|value| (name, value)));
        }
    })
}

/// Parses the statistics of a pool's `io` as name and value. Times are signed, and negative where
/// they overflow (OpenZFS: `kstat_io_t`).
pub fn pool_io(text: &str) -> impl Iterator<Item = Result<(&str, f64), ParseError>> {
    let mut lines = text.lines().enumerate();
    let names = lines
        .find(|(_, line)| line.starts_with("nread"))
        .map(|(_, line)| line);
    let (index, values) = lines.next().unwrap_or_default();
    let lost = names.is_none() && !text.is_empty();
    let names = words(names.unwrap_or_default());
    // With more or fewer values than names, it is unknown which value belongs to which name.
    let shifted = names.clone().count() != words(values).count();
    let found = if lost { text } else { values };
    let bad = (lost || shifted).then(|| Err(ParseError::at(index, "a number under each heading", found)));
    let pairs = names.zip(words(values)).filter(move |_| !shifted);
    bad.into_iter().chain(pairs.map(move |(name, word)| {
        let value =
            integer(word).ok_or_else(|| ParseError::at(index, "a number under each heading", word))?;
        Ok((name, value))
    }))
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
        nread    nwritten reads    wlentime\n1884160  3206144  22       -4516494086296980576\n";

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
        for line in ["hits 4 -1", "hits 4", "hits", "hits: x -y z"] {
            let text = format!("name type data\nempty 7\n{line}\nmisses 4 2\n");
            let all: Vec<_> = named(&text).map(|one| one.map_err(|error| error.line)).collect();
            assert_eq!(all, [Err(3), Ok(("misses", 2.0))], "{line}");
        }
    }

    #[test]
    fn pool_counters() {
        let all: Vec<_> = pool_io(IO).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            all,
            [
                ("nread", 1_884_160.0),
                ("nwritten", 3_206_144.0),
                ("reads", 22.0),
                ("wlentime", -4_516_494_086_296_980_576.0)
            ]
        );
        let broken = IO.replace("3206144", "x");
        let all: Vec<_> = pool_io(&broken).map(Result::ok).collect();
        assert_eq!(
            all[..3],
            [Some(("nread", 1_884_160.0)), None, Some(("reads", 22.0))]
        );
        assert_eq!(pool_io("").count(), 0);
        for text in ["nread reads\n1\n", "nread\n1 2\n", "12 3\nnoise\n1 2\n"] {
            let all: Vec<_> = pool_io(text).collect();
            assert!(matches!(all[..], [Err(_)]), "{all:?}");
        }
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

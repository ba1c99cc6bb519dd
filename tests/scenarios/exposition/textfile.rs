//! Text files of metrics: joined, clashing, broken, changed and too many.

use std::fs;

use virtfleet_agent_metrics::Registry;
use virtfleet_wire::settings::MetricsSettings;

use crate::exposition::{
    processor::{of, registry_with},
    world::*,
};

struct Guest {
    dir: tempfile::TempDir,
    registry: Registry,
}

fn guest() -> Guest {
    guest_with(|_| {})
}

fn guest_with(change: impl FnOnce(&mut MetricsSettings)) -> Guest {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("kubevirt"), dir.path());
    fs::remove_dir_all(dir.path().join("rootfs/var/lib/node_exporter")).unwrap();
    fs::create_dir_all(dir.path().join("rootfs/srv/text")).unwrap();
    let registry = registry_with(dir.path(), |settings| {
        settings.textfile.directories = vec!["/srv/t*".to_owned()];
        change(settings);
    });
    Guest { dir, registry }
}

impl Guest {
    fn write(&self, name: &str, text: &str) {
        let folder = self.dir.path().join("rootfs/srv/text");
        // As the collector requires of writers: replace the file, so that it is never half written.
        fs::write(folder.join("next"), text).unwrap();
        fs::rename(folder.join("next"), folder.join(name)).unwrap();
    }
    fn page(&mut self) -> String {
        let page = scrape(&mut self.registry);
        assert!(successes(&page)["textfile"]);
        page
    }
}

fn errors(page: &str) -> &str {
    of(page, "node_textfile_scrape_error")[0]
}

const FINE: &str = "node_textfile_scrape_error 0";
const WRONG: &str = "node_textfile_scrape_error 1";

#[test]
fn families_are_joined_and_the_first_file_says_what_they_are() {
    let mut guest = guest();
    guest.write(
        "a.prom",
        "# HELP job_ok Went well.\n# TYPE job_ok gauge\njob_ok{job=\"a\"} 1\n",
    );
    guest.write("b.prom", "# TYPE job_ok gauge\njob_ok{job=\"b\"} 0\n");
    guest.write("c.txt", "not ours\n");
    let page = guest.page();
    assert!(
        page.contains(
            "# HELP job_ok Went well.\n# TYPE job_ok gauge\njob_ok{job=\"a\"} 1\njob_ok{job=\"b\"} 0\n"
        ),
        "{page}"
    );
    assert_eq!(errors(&page), FINE);
    let files: Vec<_> = of(&page, "node_textfile_mtime_seconds")
        .iter()
        .map(|line| line.split('"').nth(1).unwrap())
        .collect();
    assert_eq!(files, ["/srv/text/a.prom", "/srv/text/b.prom"]);
    for other in [
        "# TYPE job_ok counter\njob_ok{job=\"b\"} 0\n",
        "# HELP job_ok Another text.\n# TYPE job_ok gauge\njob_ok{job=\"b\"} 0\n",
        "# TYPE job_ok gauge\njob_ok{job=\"a\",none=\"\"} 0\n",
    ] {
        guest.write("b.prom", other);
        let page = guest.page();
        assert_eq!(of(&page, "job_ok"), ["job_ok{job=\"a\"} 1"], "{other}");
        assert_eq!(errors(&page), WRONG);
    }
    guest.write("b.prom", "other_total 1\n");
    let page = guest.page();
    assert!(
        page.contains("# HELP other_total Metric read from /srv/text/b.prom\n# TYPE other_total untyped\n")
    );
    assert_eq!(errors(&page), FINE);
}

#[test]
fn a_family_of_a_collector_stays_the_collectors() {
    let mut guest = guest();
    guest.write(
        "a.prom",
        "node_load1 99\nprocess_open_fds 1\nnode_scrape_collector_success{collector=\"x\"} 1\nmine 1\n",
    );
    let page = guest.page();
    assert_eq!(of(&page, "node_load1").len(), 1);
    assert!(!page.contains("node_load1 99") && !page.contains("process_open_fds"));
    assert_eq!(of(&page, "mine"), ["mine 1"]);
    assert_eq!(errors(&page), WRONG);
}

#[test]
fn a_broken_file_harms_no_other() {
    let mut guest = guest();
    guest.write("good.prom", "good 1\n");
    for broken in [
        "bad{ 1\n",
        "fine 1\nbad",
        "fine 1\nbad 1 1395066363000\n",
        "\0\u{1}\n",
        &"x 1\n".repeat(400_000),
    ] {
        guest.write("bad.prom", broken);
        let page = guest.page();
        assert_eq!(of(&page, "good"), ["good 1"]);
        assert!(of(&page, "fine").is_empty() && of(&page, "bad").is_empty());
        assert_eq!(
            of(&page, "node_textfile_mtime_seconds").len(),
            1,
            "only what was read"
        );
        assert_eq!(errors(&page), WRONG);
    }
    let path = guest.dir.path().join("rootfs/srv/text/bad.prom");
    fs::write(&path, [0xff, b'\n']).unwrap();
    assert_eq!(errors(&guest.page()), WRONG);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(errors(&guest.page()), WRONG);
    fs::remove_dir(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(errors(&guest.page()), WRONG);
    fs::remove_file(&path).unwrap();
    assert_eq!(errors(&guest.page()), FINE);
    fs::remove_dir_all(guest.dir.path().join("rootfs/srv/text")).unwrap();
    let page = guest.page();
    assert_eq!(errors(&page), WRONG, "the folder is gone");
    assert!(of(&page, "good").is_empty());
}

#[test]
fn there_is_an_end_to_files_and_bytes() {
    let mut guest = guest();
    let line = format!("# {}\n", "x".repeat(1000));
    for n in 0..5 {
        guest.write(&format!("{n}.prom"), &format!("{}f{n} 1\n", line.repeat(1000)));
    }
    let page = guest.page();
    assert_eq!(errors(&page), WRONG);
    assert_eq!((of(&page, "f3").len(), of(&page, "f4").len()), (1, 0));
    for n in 0..5 {
        guest.write(&format!("{n}.prom"), &format!("f{n} 1\n"));
    }
    assert_eq!(errors(&guest.page()), FINE);
    for n in 1000..2005 {
        guest.write(&format!("{n}.prom"), &format!("g{{n=\"{n}\"}} 1\n"));
    }
    let page = guest.page();
    assert_eq!(errors(&page), WRONG);
    assert_eq!(of(&page, "node_textfile_mtime_seconds").len(), 1000);
}

#[test]
fn more_series_than_may_be_written_leave_out_whole_files() {
    let file = |name: char, count: usize| {
        let lines = (0..count).map(|n| format!("{name}{{n=\"{n}\"}} 1\n"));
        lines.collect::<String>()
    };
    let shown = |guest: &mut Guest| {
        let page = guest.page();
        let counts = ["a", "b", "c"].map(|name| of(&page, name).len());
        let times = of(&page, "node_textfile_mtime_seconds").len();
        assert!(
            of(&page, "virtfleet_agent_series_dropped").is_empty(),
            "nothing is cut"
        );
        (counts, times, errors(&page) == WRONG)
    };
    // What anybody may write, with a time for each file and the error.
    let mut guest = guest();
    for (name, count) in [('a', 6000), ('b', 3997), ('c', 2000)] {
        guest.write(&format!("{name}.prom"), &file(name, count));
    }
    assert_eq!(shown(&mut guest), ([6000, 3997, 0], 2, true));
    guest.write("c.prom", "# none\n");
    assert_eq!(
        shown(&mut guest),
        ([6000, 3997, 0], 2, true),
        "its time has no room"
    );
    guest.write("b.prom", &file('b', 3996));
    assert_eq!(shown(&mut guest), ([6000, 3996, 0], 3, false));
    let mut guest = guest_with(|settings| {
        settings.max_series_of.insert("textfile".to_owned(), 12);
    });
    for name in ['a', 'b', 'c'] {
        guest.write(&format!("{name}.prom"), &file(name, 4));
    }
    assert_eq!(shown(&mut guest), ([4, 4, 0], 2, true));
}

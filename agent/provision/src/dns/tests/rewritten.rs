//! Another program writes `/etc/resolv.conf` once more, right after our change was verified.

use std::{cell::Cell, thread};

use super::*;

/// Answers everything. When it is asked by way of our file, it empties the file, once, and somebody
/// fills it a moment later with the same text.
struct Rewriting<'a> {
    guest: &'a Guest,
    is_done: Cell<bool>,
}

impl DnsClient for Rewriting<'_> {
    fn query(&self, questions: &[Question], timeout: Duration) -> Vec<Answer> {
        let text = self.guest.resolv_conf();
        if text.contains(GOOD) && !self.is_done.replace(true) {
            let path = self.guest.dir.path().join("root/etc/resolv.conf");
            fs::write(&path, "").unwrap();
            #[expect(
                clippy::disallowed_methods,
                reason = "the other program takes its time, and says nothing of it"
            )]
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(200));
                fs::write(path, text).unwrap();
            });
        }
        let answers = Answers {
            guest: self.guest,
            alive: all,
            asked: RefCell::default(),
        };
        answers.query(questions, timeout)
    }
}

#[test]
fn a_file_that_is_just_being_written_is_not_taken_for_one_without_nameservers() {
    let guest = Guest::new(AUTO);
    let dns_client = Rewriting {
        guest: &guest,
        is_done: Cell::new(false),
    };
    let commands = FakeCommands::content();
    let provisioner = DnsProvisioner {
        roots: &guest.roots,
        commands: &commands,
        fail_points: &NoFailPoints,
        dns_client: &dns_client,
        boot_id: BOOT,
        settle: SETTLE,
        network_wait: Duration::ZERO,
    };
    let passed = provisioner.run(&guest.wanted(), by_stage()).unwrap().unwrap();
    assert!(dns_client.is_done.get());
    assert_eq!(passed.state.standing, DnsStatus::Verified, "{:?}", passed.state);
    assert!(passed.changed && !failed(&passed.state));
}

use super::*;

use virtfleet_agent_host::FakeCommands;

#[test]
fn a_tool_gets_half_of_the_time_left_and_none_starts_without_time() {
    let fake = FakeCommands::content();
    let within = |until| BoundedCommands {
        commands: &fake,
        until,
    };
    within(None).run(&Tool::new("a")).unwrap();
    within(Some(Instant::now() + STAGE_BUDGET))
        .run(&Tool::new("b"))
        .unwrap();
    let late = within(Some(Instant::now())).run(&Tool::new("c")).unwrap_err();
    assert!(late.to_string().contains("no time left"), "{late}");
    assert_eq!(fake.take(), ["a", "b"]);
    // Tools that hang one after the other still end in time.
    let (mut left, mut took) = (ROLLBACK_RESERVE, Duration::ZERO);
    for _ in 0..20 {
        let one = Duration::from_secs(20).min(left / 2);
        took += one;
        left -= one;
    }
    assert!(took < ROLLBACK_RESERVE);
}

#[test]
fn a_stage_ends_before_its_unit_times_out_and_leaves_time_for_a_rollback() {
    let unit = include_str!("../../../../../packaging/systemd/virtfleet-dns.service");
    assert!(unit.contains("\nTimeoutStartSec=90s\n"));
    assert!(STAGE_BUDGET + Duration::from_secs(10) <= Duration::from_secs(90));
    let until = RunDeadline::within(STAGE_BUDGET);
    let between = until.all().unwrap() - until.change().unwrap();
    assert_eq!(between, ROLLBACK_RESERVE);
    // The wait for a network leaves time for what follows.
    let patience = until.wait(Duration::from_mins(5));
    assert!(
        patience + ROLLBACK_RESERVE + MIN_CHANGE_TIME * 2 <= STAGE_BUDGET
            && patience >= Duration::from_secs(25)
    );
    assert!(until.for_a_change());
    let none = RunDeadline::within(ROLLBACK_RESERVE);
    assert!(!none.for_a_change());
    assert_eq!(
        (none.wait(STAGE_BUDGET), none.settle(STAGE_BUDGET)),
        (Duration::ZERO, Duration::ZERO)
    );
    assert_eq!(RunDeadline::UNBOUNDED.wait(STAGE_BUDGET), STAGE_BUDGET);
    assert!(RunDeadline::UNBOUNDED.for_a_change());
}

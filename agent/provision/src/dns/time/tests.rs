use super::*;

use virtfleet_agent_host::FakeCommands;

#[test]
fn a_tool_has_half_of_what_is_left_and_none_is_started_when_nothing_is() {
    let fake = FakeCommands::content();
    let within = |until| Within {
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
    // However many hang one behind the other, they end in time.
    let (mut left, mut took) = (PUT_BACK, Duration::ZERO);
    for _ in 0..20 {
        let one = Duration::from_secs(20).min(left / 2);
        took += one;
        left -= one;
    }
    assert!(took < PUT_BACK);
}

#[test]
fn a_stage_ends_before_its_unit_does_and_leaves_time_to_put_back() {
    let unit = include_str!("../../../../../packaging/systemd/virtfleet-dns.service");
    assert!(unit.contains("\nTimeoutStartSec=90s\n"));
    assert!(STAGE_BUDGET + Duration::from_secs(10) <= Duration::from_secs(90));
    let until = Until::within(STAGE_BUDGET);
    let between = until.all().unwrap() - until.change().unwrap();
    assert_eq!(between, PUT_BACK);
    // The boot's patience leaves time for what follows.
    let patience = until.wait(Duration::from_mins(5));
    assert!(patience + PUT_BACK + CHANGE * 2 <= STAGE_BUDGET && patience >= Duration::from_secs(25));
    assert!(until.for_a_change());
    let none = Until::within(PUT_BACK);
    assert!(!none.for_a_change());
    assert_eq!(
        (none.wait(STAGE_BUDGET), none.settle(STAGE_BUDGET)),
        (Duration::ZERO, Duration::ZERO)
    );
    assert_eq!(Until::UNBOUNDED.wait(STAGE_BUDGET), STAGE_BUDGET);
    assert!(Until::UNBOUNDED.for_a_change());
}

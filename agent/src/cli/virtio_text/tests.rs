use virtfleet_agent_state::virtio::sample;
use virtfleet_wire::settings::NicSettings;

use super::*;

fn plain(machine: Machine, all: bool) -> String {
    let seen = Virtio::of(machine, Some(sample::state()), None, &NicSettings::default());
    anstream::adapter::strip_str(&text(&seen, all, false)).to_string()
}

#[test]
fn a_tree_shows_devices_queues_and_findings() {
    insta::assert_snapshot!("virtio", plain(sample::machine(), false));
}

#[test]
fn sixty_four_interfaces_stay_readable_and_all_shows_everything() {
    let brief = plain(sample::large(64, 8), false);
    assert!(brief.lines().count() < 420, "{}", brief.lines().count());
    assert!(
        brief.contains("16 queues (8 input, 8 output), 16 interrupts"),
        "{brief}"
    );
    assert!(
        brief.contains("rx  8 queues, 80 packets, at most 12 % on one"),
        "{brief}"
    );
    assert!(!brief.contains("input.7"), "{brief}");
    let all = plain(sample::large(64, 8), true);
    assert_eq!(all.matches("input.7").count(), 64);
}

#[test]
fn one_device_of_many_queues_is_summed_up_and_others_are_not() {
    let mut machine = sample::machine();
    let large = sample::large(1, 20);
    machine.devices.extend(large.devices);
    machine.nics.extend(large.nics);
    let text = plain(machine, false);
    assert!(text.contains("40 queues (20 input, 20 output)"), "{text}");
    assert!(text.contains("request.1"), "{text}");
}

#[test]
fn an_empty_machine_and_control_characters_are_handled() {
    let text = plain(Machine::default(), false);
    assert!(text.contains("no findings"), "{text}");
    let mut machine = sample::healthy();
    machine.nics[0].name = "e\u{1b}[31m\n".into();
    machine.devices[0].driver = None;
    let seen = Virtio::of(
        machine,
        None,
        Some("nic.json: wrong".into()),
        &NicSettings::default(),
    );
    let text = super::text(&seen, false, true);
    assert!(!text.contains("\u{1b}[31m"), "{text:?}");
    assert!(text.contains("not usable: nic.json: wrong"), "{text}");
    assert!(text.contains("no-driver"), "{text}");
}

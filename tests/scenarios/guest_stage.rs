//! The stage of real guests, tried on itself.

use virtfleet_tests::guest::{self, Start, Vm};

#[test]
fn tier4_first() {
    guest::play("tier4_first", |scene| {
        let guest = scene.start(&Vm::new("one"), Start::Booted)?;
        eprintln!("{}", guest.run("date; lsblk; ip -br a")?);
        Ok(())
    });
}

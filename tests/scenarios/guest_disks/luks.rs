//! Encryption at rest: opened at each boot by a file or by the TPM, never formatted when the key is
//! lost, and open to a person with the recovery key.

use anyhow::{Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, MIB, Suite, needs, play},
    process::Launch,
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const DISKS: &str = "
- name: file
  match: { serial: file }
  filesystem: ext4
  mountPoint: /data/file
  grow: true
  encryption: { luks2: { key: /etc/virtfleet/keys/file, recoveryKey: /etc/virtfleet/keys/recovery } }
- name: chip
  match: { serial: chip }
  filesystem: xfs
  mountPoint: /data/chip
  required: true
  encryption: { luks2: { key: tpm2, recoveryKey: /etc/virtfleet/keys/recovery } }
";
const KEYS: &str = "set -e; umask 077; mkdir -p /etc/virtfleet/keys; cd /etc/virtfleet/keys
head -c 64 /dev/urandom >file; tr -dc a-z0-9 </dev/urandom | head -c 48 >recovery; sync file recovery";
const PLACES: [&str; 2] = ["/data/file", "/data/chip"];

/// The headers' UUIDs and the sums of their first 16 MiB: another format changes both, opening
/// neither.
fn headers(machine: &Guest) -> Result<String> {
    machine.run(
        "for name in file chip; do cryptsetup luksUUID /dev/disk/by-id/virtio-$name; \
         head -c 16M /dev/disk/by-id/virtio-$name | sha256sum; done",
    )
}

fn opened_by_file_and_by_chip(test: &str, suite: Suite) {
    play(test, |scene| {
        if skip::need(4, test, needs(suite))?.is_none() {
            return Ok(());
        }
        let vm = kit::vm("luks")
            .suite(suite)
            .tpm()
            .disk(Disk::blank("file", 2 * GIB).serial("file"))
            .disk(Disk::blank("chip", 2 * GIB).serial("chip"));
        let machine = kit::guest(scene, &vm, DISKS)?;
        machine.run(KEYS)?;
        kit::applied(&machine)?;
        for place in PLACES {
            kit::mounted(&machine, place)?;
            machine.run(&format!("echo this-is-a-secret >{place}/mark && sync -f {place}"))?;
        }
        for name in ["file", "chip"] {
            // From outside: what has the disk's file has this.
            let file = machine.folder().join(format!("{name}.img"));
            let search = Launch::new("sh")
                .args([
                    "-c",
                    "tr -d '\\0' <\"$1\" | grep -c -a this-is-a-secret",
                    "search",
                ])
                .arg(&file)
                .output(AGENT_TIMEOUT)?;
            ensure!(
                search.stdout == b"0\n",
                "the secret is on {} in clear",
                file.display()
            );
        }
        kit::settled(&machine)?;
        machine.resize("file", 3 * GIB)?;
        kit::applied(&machine)?;
        let size: u64 = machine
            .run("findmnt -bno SIZE --mountpoint /data/file")?
            .trim()
            .parse()?;
        ensure!(size > 2 * GIB + 500 * MIB, "{size} bytes");
        machine.run("sync")?;
        let before = headers(&machine)?;

        // Without warning, and from nothing but what the disks and the TPM hold.
        machine.cut_power();
        machine.boot_to_agent()?;
        for place in PLACES {
            kit::until_mounted(&machine, place)?;
            ensure!(machine.run(&format!("cat {place}/mark"))? == "this-is-a-secret");
        }
        machine.run_until("systemctl is-active --quiet kubelet", "kubelet")?;
        ensure!(headers(&machine)? == before, "a header has changed");
        kit::settled(&machine)?;

        // The file is gone, the TPM is new, and the recovery key is where it belongs: not in the
        // guest.
        machine.run("cd /etc/virtfleet/keys; mv recovery /root; rm file; sync")?;
        machine.cut_power();
        machine.lose_tpm()?;
        machine.boot_to_agent()?;
        machine.run_until("systemctl is-failed --quiet virtfleet-disks", "the gate")?;
        let output = kit::apply(&machine)?;
        ensure!(
            output.code != 0 && output.stdout.contains("chip"),
            "a pass without keys succeeds: {}",
            output.stdout
        );
        println!("{}{}", output.stdout, output.stderr);
        kit::refused(&machine, "file", "no-key")?;
        for (name, place) in ["file", "chip"].into_iter().zip(PLACES) {
            kit::not_mounted(&machine, place)?;
            ensure!(
                kit::begun(&machine, name, "encrypt")? == 1,
                "{name} was encrypted again"
            );
            ensure!(
                kit::begun(&machine, name, "format-mapped")? == 1,
                "{name} was formatted again"
            );
            // A person with the recovery key gets at the data.
            let said = machine.run_within(
                &format!(
                    "cryptsetup open --key-file /root/recovery /dev/disk/by-id/virtio-{name} by-hand && mount -o ro /dev/mapper/by-hand /mnt \
                     && cat /mnt/mark; umount /mnt; cryptsetup close by-hand"
                ),
                AGENT_TIMEOUT,
            )?;
            ensure!(said == "this-is-a-secret", "{said}");
        }
        ensure!(headers(&machine)? == before, "a header has changed");
        let findings = kit::findings(&machine)?;
        ensure!(findings.iter().any(|id| id.starts_with("disk-")), "{findings:?}");
        Ok(())
    });
}

#[test]
fn tier4_luks_opens_by_file_and_by_tpm_and_a_lost_key_formats_nothing() {
    if skip::deferred(
        4,
        "tier4_luks_opens_by_file_and_by_tpm_and_a_lost_key_formats_nothing",
        kit::SOAK,
    ) {
        return;
    }
    for suite in [Suite::Trixie, Suite::Bookworm] {
        opened_by_file_and_by_chip(
            "tier4_luks_opens_by_file_and_by_tpm_and_a_lost_key_formats_nothing",
            suite,
        );
    }
}

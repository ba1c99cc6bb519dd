//! The harness of the scenario tests, the fleet simulator and the benchmarks: what they share and nothing that ships.
//!
//! ```text
//! scenarios/*.rs ──┐                 ┌─ process, wait, ports   starting and waiting, without fixed sleeps
//! src/bin/*.rs   ──┴─▶ this library ─┼─ pki, scrape            certificates, an HTTP(S) client
//!                                    ├─ bins, parts, skip      what is there to be tested, and what to do when it is not
//!                                    ├─ guest, real            real VMs under QEMU; one as a member of the fleet
//!                                    ├─ cluster                real Kubernetes API servers, and objects for them
//!                                    ├─ prometheus             a real one that scrapes the fleet
//!                                    ├─ disks                  a root with loop devices for secondary disks
//!                                    ├─ dns                    network namespaces with resolvers, good and bad, and a guest among them
//!                                    ├─ machine                a Debian in a container, with systemd as its first process
//!                                    ├─ measure                what a process costs
//!                                    ├─ parity                 the agent's page beside node_exporter's
//!                                    ├─ roots                  proc and sys of guests of any size, generated
//!                                    └─ sim                    a fleet of simulated guests and its manifests
//! ```
//!
//! A scenario's tier (1 to 4, see `docs/contributing/testing.md`) is the digit after `tier` in its name; without one it is 1.

pub mod bins;
pub mod cluster;
pub mod delivered;
pub mod disks;
pub mod dns;
pub mod guest;
pub mod loops;
pub mod machine;
pub mod measure;
pub mod parity;
pub mod parsers;
pub mod parts;
pub mod pki;
pub mod ports;
pub mod process;
pub mod prometheus;
pub mod real;
pub mod roots;
pub mod scrape;
pub mod scratch;
pub mod sim;
pub mod skip;
pub mod stage;
pub mod swap;
pub mod this_machine;
pub mod wait;

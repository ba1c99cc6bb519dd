//! Test harness of the scenario tests, the fleet simulator and the benchmarks. Nothing here is
//! shipped.
//!
//! ```text
//! scenarios/*.rs ──┐                 ┌─ process, wait, ports   start programs and wait, without fixed sleeps
//! src/bin/*.rs   ──┴─▶ this library ─┼─ pki, scrape, enrolment certificates, an HTTP(S) client, a client of enrolment
//!                                    ├─ client_hello           a client that offers at most TLS 1.2
//!                                    ├─ bins, parts, skip      programs under test, servers; skipping
//!                                    ├─ guest, real            real VMs under QEMU, also in a fleet
//!                                    ├─ cluster                Kubernetes API servers and objects
//!                                    ├─ prometheus             a Prometheus that scrapes the fleet
//!                                    ├─ prometheus_past        a Prometheus that has a past
//!                                    ├─ grafana                the shipped dashboards and their sources
//!                                    ├─ disks                  a root with loop devices as disks
//!                                    ├─ dns                    network namespaces with resolvers and a guest
//!                                    ├─ policy                 NetworkPolicies in network namespaces
//!                                    ├─ machine                a Debian in a container, with systemd
//!                                    ├─ manual                 man pages and completions of the programs
//!                                    ├─ measure                CPU time and memory of a process
//!                                    ├─ mla_soak               receivers of remote write that fail, and checks
//!                                    ├─ osm                    what KKP makes of an OperatingSystemProfile
//!                                    ├─ parity                 the agent's page against node_exporter's
//!                                    ├─ queue                  bodies for queues on disk
//!                                    ├─ remote_write           a sender of pages, a receiver that records, KKP's gateway, Cortex
//!                                    ├─ roots                  generated proc and sys of guests of any size
//!                                    └─ sim                    simulated guests and their manifests
//! ```
//!
//! A scenario's tier (1 to 4, see `docs/contributing/testing.md`) is the digit after `tier` in its
//! name; without one it is 1.

#![allow(
    clippy::missing_errors_doc,
    reason = "an error of the harness ends the test, and its text says what failed"
)]

pub mod access;
pub mod agent_home;
pub mod bins;
pub mod client_hello;
pub mod cluster;
pub mod delivered;
pub mod disks;
pub mod dns;
pub mod enrolment;
pub mod grafana;
pub mod guest;
pub mod image;
pub mod install;
pub mod loops;
pub mod machine;
pub mod manual;
pub mod measure;
pub mod mla_soak;
pub mod osm;
pub mod parity;
pub mod parsers;
pub mod parts;
pub mod pki;
pub mod policy;
pub mod ports;
pub mod process;
pub mod prometheus;
pub mod prometheus_past;
pub mod queue;
pub mod real;
pub mod remote_write;
pub mod roots;
pub mod scrape;
pub mod scratch;
pub mod sim;
pub mod skip;
pub mod stage;
pub mod swap;
pub mod this_machine;
pub mod wait;

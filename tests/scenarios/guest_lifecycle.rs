//! What happens to an agent in a guest after it has come: other software that runs cloud-init
//! again, boots without cloud-init, settings that change, upgrades, the package, and Ignition in
//! the place of cloud-init.

mod beside;
mod ignition;
mod kit;
mod kkp;
mod package;
mod pods;
mod settings;

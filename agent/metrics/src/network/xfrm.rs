//! `xfrm`: IPsec errors, from `/proc/net/xfrm_stat` (kernel: `net/xfrm/xfrm_proc.c`).

use virtfleet_agent_core::procfs::pairs::pairs;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

macro_rules! counters {
    ($($field:literal, $name:literal, $help:literal;)*) => {
        [$((
            concat!("Xfrm", $field),
            concat!("node_xfrm_", $name, "_packets_total"),
            concat!("Packets: ", $help, "."),
        ),)*]
    };
}

/// The field, the family and the HELP.
static COUNTERS: [(&str, &str, &str); 28] = counters! {
    "InError", "in_error", "an inbound error without its own counter";
    "InBufferError", "in_buffer_error", "no buffer was left";
    "InHdrError", "in_hdr_error", "the header was broken";
    "InNoStates", "in_no_states", "no state for the SPI, address or protocol";
    "InStateProtoError", "in_state_proto_error", "the transformation failed, e.g. with a wrong key";
    "InStateModeError", "in_state_mode_error", "the transformation's mode failed";
    "InStateSeqError", "in_state_seq_error", "the sequence number was outside the window";
    "InStateExpired", "in_state_expired", "the inbound state had expired";
    "InStateMismatch", "in_state_mismatch", "an option of the state did not match, e.g. encapsulation in UDP";
    "InStateInvalid", "in_state_invalid", "the inbound state was invalid";
    "InTmplMismatch", "in_tmpl_mismatch", "no template for the states";
    "InNoPols", "in_no_pols", "no policy for the states";
    "InPolBlock", "in_pol_block", "an inbound policy discards them";
    "InPolError", "in_pol_error", "an inbound policy failed";
    "OutError", "out_error", "an outbound error without its own counter";
    "OutBundleGenError", "out_bundle_gen_error", "no bundle could be created";
    "OutBundleCheckError", "out_bundle_check_error", "the check of a bundle failed";
    "OutNoStates", "out_no_states", "no outbound state";
    "OutStateProtoError", "out_state_proto_error", "the outbound transformation failed";
    "OutStateModeError", "out_state_mode_error", "the outbound transformation's mode failed";
    "OutStateSeqError", "out_state_seq_error", "the sequence number was used up";
    "OutStateExpired", "out_state_expired", "the outbound state had expired";
    "OutPolBlock", "out_pol_block", "an outbound policy discards them";
    "OutPolDead", "out_pol_dead", "the outbound policy was dead";
    "OutPolError", "out_pol_error", "an outbound policy failed";
    "FwdHdrError", "fwd_hdr_error", "forwarding is not allowed";
    "OutStateInvalid", "out_state_invalid", "the outbound state was invalid, perhaps expired";
    "AcquireError", "acquire_error", "the state was used before it was acquired";
};

struct Xfrm {
    file: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Xfrm {
        file: Reread::new(context.roots.proc("net/xfrm_stat")),
    }))
}

impl Collector for Xfrm {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = match self.file.text() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("the kernel has no IPsec error counters"));
            }
            text => text?,
        };
        let mut values = [None; COUNTERS.len()];
        let mut skipped = Skipped::default();
        for (field, value) in skipped.valid(&path, pairs(&text)) {
            if let Some(index) = COUNTERS.iter().position(|(known, ..)| *known == field) {
                values[index] = Some(value);
            }
        }
        if values.iter().all(Option::is_none) {
            skipped.end()?;
            return Err(CollectError::failed(format!(
                "{} contains no known counter",
                path.display()
            )));
        }
        for ((_, name, help), value) in COUNTERS.iter().zip(values) {
            if let Some(value) = value {
                page.family(name, help, MetricType::Counter)
                    .sample(&[], value as f64);
            }
        }
        skipped.end()
    }
}

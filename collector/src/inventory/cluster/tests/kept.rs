//! What is kept of live objects against what the readers ask for.

use super::{every_kind, object};
use crate::inventory::{
    cluster::object::{KeptPart, kept_part},
    read::asked,
};

/// A field that the mask of live objects lacks is absent for ever, and no error says so.
#[test]
fn every_field_that_is_read_is_kept() {
    let cluster = "prod".parse().unwrap();
    for (kind, _, value) in every_kind() {
        asked::take();
        kind.fact(&object(&value), Some(&cluster)).unwrap();
        let asked = asked::take();
        assert!(asked.fields.len() > 3, "{kind:?}: nothing was recorded");
        for names in &asked.fields {
            assert_ne!(
                kept_part(names),
                KeptPart::Nothing,
                "{kind:?} reads {names:?}, which is not kept"
            );
        }
        // The fields of the items of a list are asked for only if it has items.
        for (names, _) in asked.lists.iter().filter(|(_, is_there)| !**is_there) {
            let is_whole = kept_part(names) == KeptPart::Everything;
            assert!(
                is_whole,
                "{kind:?} reads the list {names:?}, which `every_kind` lacks"
            );
        }
    }
}

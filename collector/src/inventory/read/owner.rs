//! Reads `metadata.ownerReferences`. An entry that cannot be read counts as absent.

use super::field::Field;

/// The KubeVirt object of this kind that controls the object with these metadata.
pub(super) fn controller<'a>(metadata: &Field<'a>, kind: &str) -> Option<Field<'a>> {
    let owners = metadata.get("ownerReferences").ok()?.items().ok()?;
    owners.into_iter().find(|owner| {
        let controls = owner.get("controller").and_then(|field| field.flag());
        let group = text(owner, "apiVersion").is_some_and(|version| version.starts_with("kubevirt.io/"));
        controls.is_ok_and(|controls| controls) && group && text(owner, "kind").as_deref() == Some(kind)
    })
}

/// The text of a field; none if it is absent or no text.
pub(super) fn text(field: &Field<'_>, name: &str) -> Option<String> {
    let field = field.get(name).ok()?;
    field.text().ok()?.map(str::to_owned)
}

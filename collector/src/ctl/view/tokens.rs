//! `virtfleetctl token`.

use virtfleet_collector_core::view::List;

use super::{ViewOptions, sheet::Sheet};
use crate::{
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
        text::{age, since},
    },
    tokens::{CreatedToken, JoinTokenView},
};

pub(in crate::ctl) fn tokens(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<JoinTokenView> = answer.read()?;
    let mut table = Table::new(&[
        "ID",
        "CLUSTER",
        "VALID-FOR",
        "FROM",
        "LAST-USED",
        "REFUSED",
        "CREATED",
    ]);
    for token in &list.items {
        let (valid_for, tone) = valid_for(token, options.now);
        table.rows.push(vec![
            Cell::new(token.id.as_str()),
            Cell::new(token.cluster.as_str()),
            Cell::toned(valid_for, tone),
            Cell::new(from(token)),
            Cell::maybe(token.last_used_ms.map(|at| since(options.now, at))),
            refused(token),
            Cell::new(since(options.now, token.created_ms)),
        ]);
    }
    Ok(options.table(&table, "no join tokens"))
}

/// Only the token, for a file.
pub(in crate::ctl) fn created_token(answer: &ApiResponse, _: &ViewOptions) -> Result<String, Fail> {
    let created: CreatedToken = answer.read()?;
    Ok(format!("{}\n", created.token))
}

pub(in crate::ctl) fn token(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let token: JoinTokenView = answer.read()?;
    let mut sheet = Sheet::new(options);
    sheet.pair("Revoked", Some(&token.id));
    sheet.pair("Cluster", Some(&token.cluster));
    sheet.pair("From", Some(from(&token)));
    Ok(sheet.finish())
}

fn from(token: &JoinTokenView) -> String {
    if token.networks.is_empty() {
        return "the VM's pod".to_owned();
    }
    let networks: Vec<_> = token.networks.iter().map(ToString::to_string).collect();
    networks.join(",")
}

/// Number, last reason and source address.
fn refused(token: &JoinTokenView) -> Cell {
    let Some(refused) = &token.refused else {
        return Cell::maybe(None::<String>);
    };
    let reason = refused.last_reason.as_str();
    let text = format!("{} ({reason} from {})", refused.count, refused.last_address);
    Cell::toned(text, Tone::Warn)
}

fn valid_for(token: &JoinTokenView, now: u64) -> (String, Tone) {
    match token.expires_ms.checked_sub(now) {
        Some(left) => (age(left / 1000), Tone::Plain),
        None => ("expired".to_owned(), Tone::Warn),
    }
}

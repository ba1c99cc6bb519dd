//! `netstat`: counters of IP, ICMP, TCP and UDP, from `/proc/net/netstat`, `snmp` and `snmp6`,
//! untyped.
//!
//! The three files contain about 450 fields, of which about 45 are exported. The selection is
//! computed once. Afterwards the names are only compared, line by line, and the selection is
//! computed again when the kernel has other names (a module was loaded).

use std::{collections::HashSet, path::Path};

use regex_lite::Regex;
use virtfleet_agent_core::procfs::snmp::{Table, lines6, tables};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::filters;

struct Netstat {
    /// `netstat`, `snmp` and `snmp6`.
    files: [Reread; 3],
    fields: Regex,
    plans: [FileSelection; 3],
}

/// Selected fields of a file.
#[derive(Default)]
struct FileSelection(Vec<TableSelection>);

/// Selected fields of a table.
struct TableSelection {
    /// The column names for which this was computed.
    names: Box<str>,
    columns: usize,
    fields_to_export: Vec<SelectedField>,
}

struct SelectedField {
    column: usize,
    name: String,
    help: String,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let fields = filters::netstat(&context.settings.netstat)?;
    Ok(Box::new(Netstat {
        files: ["net/netstat", "net/snmp", "net/snmp6"]
            .map(|path| Reread::new(context.roots.proc(path)).single_record()),
        fields,
        plans: Default::default(),
    }))
}

impl FileSelection {
    fn fits(&self, tables: &[Table<'_>]) -> bool {
        self.0.len() == tables.len()
            && self
                .0
                .iter()
                .zip(tables)
                .all(|(row, table)| *row.names == *table.names)
    }

    fn new(tables: &[Table<'_>], fields: &Regex, taken: &mut HashSet<String>) -> Self {
        let row = |table: &Table<'_>| {
            let mut columns = 0;
            let mut fields_to_export = Vec::new();
            for (column, (protocol, field)) in table.fields().enumerate() {
                columns = column + 1;
                let key = format!("{protocol}_{field}");
                let name = format!("node_netstat_{key}");
                if fields.is_match(&key) && is_metric_name(&name) && taken.insert(key) {
                    fields_to_export.push(SelectedField {
                        column,
                        name,
                        help: format!("Statistic {protocol}{field}."),
                    });
                }
            }
            TableSelection {
                names: table.names.into(),
                columns,
                fields_to_export,
            }
        };
        Self(tables.iter().map(row).collect())
    }

    fn write(&self, tables: &[Table<'_>], path: &Path, skipped: &mut Skipped, page: &mut Page) {
        for (row, table) in self.0.iter().zip(tables) {
            if table.columns() != row.columns {
                // It is unknown which value belongs to which name.
                let error = format!(
                    "{} has different numbers of names and values in line {}",
                    path.display(),
                    table.line + 1
                );
                skipped.take::<()>(Err(CollectError::failed(error)));
                continue;
            }
            let mut fields_to_export = row.fields_to_export.iter().peekable();
            for (column, value) in table.numbers().enumerate() {
                if let Some(fields_to_export) =
                    fields_to_export.next_if(|fields_to_export| fields_to_export.column == column)
                    && let Some(value) = skipped.take(value.map_err(CollectError::parse(path)))
                {
                    page.family(
                        &fields_to_export.name,
                        &fields_to_export.help,
                        MetricType::Untyped,
                    )
                    .sample(&[], value);
                }
            }
        }
    }
}

impl Collector for Netstat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let Self { files, fields, plans } = self;
        let [netstat, snmp, snmp6] = files;
        let paths = [&*netstat, &*snmp, &*snmp6].map(|file| file.path().to_owned());
        let texts = [netstat.text()?, snmp.text()?, {
            match snmp6.text() {
                // A kernel without IPv6.
                Err(error) if error.is_missing() => "".into(),
                text => text?,
            }
        }];
        let mut skipped = Skipped::default();
        let mut read = |index: usize| skipped.valid(&paths[index], tables(&texts[index])).collect();
        let tables: [Vec<_>; 3] = [read(0), read(1), lines6(&texts[2]).collect()];
        if tables[..2].iter().all(Vec::is_empty) {
            skipped.end()?;
            return Err(CollectError::failed(format!(
                "{} and {} are empty",
                paths[0].display(),
                paths[1].display()
            )));
        }
        if !plans.iter().zip(&tables).all(|(plan, tables)| plan.fits(tables)) {
            let mut taken = HashSet::new();
            *plans = std::array::from_fn(|index| FileSelection::new(&tables[index], fields, &mut taken));
        }
        for ((plan, tables), path) in plans.iter().zip(&tables).zip(&paths) {
            plan.write(tables, path, &mut skipped, page);
        }
        skipped.end()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_host::Roots;
    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    #[test]
    fn changed_names_cause_a_new_selection() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("net")).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join("net").join(name), text).unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            ..Roots::default()
        };
        let mut collector = new(&Context::new(roots, MetricsSettings::default())).unwrap();
        let mut scrape = || {
            let mut page = Page::new();
            collector.collect(&mut page).map(|()| page.to_text())
        };
        write("netstat", "IpExt: InOctets OutOctets\nIpExt: 1 2\n");
        assert!(scrape().is_err(), "snmp is required");
        write("snmp", "Tcp: MaxConn InErrs\nTcp: -1 3\n");
        let text = scrape().unwrap();
        assert!(
            text.contains("# HELP node_netstat_IpExt_InOctets Statistic IpExtInOctets.\n"),
            "{text}"
        );
        assert!(
            text.contains("\nnode_netstat_IpExt_OutOctets 2\n")
                && text.contains("\nnode_netstat_Tcp_InErrs 3\n")
        );
        assert!(!text.contains("MaxConn"));
        write("netstat", "IpExt: OutOctets InOctets\nIpExt: 1 2\n");
        write("snmp6", "Ip6InOctets 9\nUdp6InErrors 1\n");
        let text = scrape().unwrap();
        assert!(
            text.contains("\nnode_netstat_IpExt_OutOctets 1\n")
                && text.contains("\nnode_netstat_Ip6_InOctets 9\n")
        );
        write("netstat", "IpExt: OutOctets InOctets\nIpExt: 1\n");
        let error = scrape().unwrap_err().to_string();
        assert!(
            error.ends_with("netstat has different numbers of names and values in line 2"),
            "{error}"
        );
        write("netstat", "IpExt: OutOctets InOctets\nIpExt: 1 2\n");
        write("snmp6", "Ip6InOctets 9\nUdp6InErrors 1:\n");
        let error = scrape().unwrap_err().to_string();
        assert!(
            error.ends_with("snmp6 has different numbers of names and values in line 2"),
            "{error}"
        );
    }
}

//! `netstat`: counters of IP, ICMP, TCP and UDP, from `/proc/net/netstat`, `snmp` and `snmp6`, untyped.
//!
//! The three files hold some 450 fields, of which some 45 are wanted. Which they are is found out once; after that the
//! names are only compared, line by line, and found out anew when the kernel has others (a module was loaded).

use std::collections::HashSet;

use regex_lite::Regex;
use virtfleet_agent_core::procfs::{
    ParseError,
    snmp::{Table, lines6, tables},
};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use crate::{CollectError, Collector, Context, RegistryError};
use virtfleet_agent_core::settings::filters;

struct Netstat {
    /// `netstat`, `snmp` and `snmp6`.
    files: [Reread; 3],
    fields: Regex,
    plans: [Plan; 3],
}

/// What is wanted of a file.
#[derive(Default)]
struct Plan(Vec<Row>);

/// What is wanted of a table.
struct Row {
    /// The names that this was made for.
    names: Box<str>,
    /// How many they are.
    columns: usize,
    wanted: Vec<Wanted>,
}

struct Wanted {
    column: usize,
    name: String,
    help: String,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let fields = filters::netstat(&context.settings.netstat)?;
    Ok(Box::new(Netstat {
        files: ["net/netstat", "net/snmp", "net/snmp6"]
            .map(|path| Reread::new(context.roots.proc(path)).made_at_once()),
        fields,
        plans: Default::default(),
    }))
}

impl Plan {
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
            let mut wanted = Vec::new();
            for (column, (protocol, field)) in table.fields().enumerate() {
                columns = column + 1;
                let key = format!("{protocol}_{field}");
                let name = format!("node_netstat_{key}");
                if fields.is_match(&key) && is_metric_name(&name) && taken.insert(key) {
                    wanted.push(Wanted {
                        column,
                        name,
                        help: format!("Statistic {protocol}{field}."),
                    });
                }
            }
            Row {
                names: table.names.into(),
                columns,
                wanted,
            }
        };
        Self(tables.iter().map(row).collect())
    }

    fn write(&self, tables: &[Table<'_>], page: &mut Page) -> Result<(), Wrong> {
        for (row, table) in self.0.iter().zip(tables) {
            let mut wanted = row.wanted.iter().peekable();
            let mut columns = 0;
            for (column, value) in table.numbers().enumerate() {
                let value = value.map_err(Wrong::Parse)?;
                if let Some(wanted) = wanted.next_if(|wanted| wanted.column == column) {
                    page.family(&wanted.name, &wanted.help, MetricType::Untyped)
                        .sample(&[], value);
                }
                columns = column + 1;
            }
            if columns != row.columns {
                return Err(Wrong::Count(table.line));
            }
        }
        Ok(())
    }
}

enum Wrong {
    Parse(ParseError),
    Count(usize),
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
        let read = |index: usize| tables(&texts[index]).collect::<Result<Vec<_>, _>>();
        let tables = [
            read(0).map_err(CollectError::parse(&paths[0]))?,
            read(1).map_err(CollectError::parse(&paths[1]))?,
            lines6(&texts[2]).collect(),
        ];
        if tables[..2].iter().all(Vec::is_empty) {
            return Err(CollectError::failed(format!(
                "{} and {} are empty",
                paths[0].display(),
                paths[1].display()
            )));
        }
        if !plans.iter().zip(&tables).all(|(plan, tables)| plan.fits(tables)) {
            let mut taken = HashSet::new();
            *plans = std::array::from_fn(|index| Plan::new(&tables[index], fields, &mut taken));
        }
        for ((plan, tables), path) in plans.iter().zip(&tables).zip(&paths) {
            plan.write(tables, page).map_err(|wrong| match wrong {
                Wrong::Parse(error) => CollectError::parse(path)(error),
                Wrong::Count(line) => CollectError::failed(format!(
                    "{} has not as many values as names in line {}",
                    path.display(),
                    line + 2
                )),
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_host::Roots;
    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    #[test]
    fn names_that_change_are_found_out_anew() {
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
        assert!(scrape().is_err(), "snmp has to be there");
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
            error.ends_with("netstat has not as many values as names in line 2"),
            "{error}"
        );
    }
}

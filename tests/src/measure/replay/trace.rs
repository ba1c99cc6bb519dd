//! Reads what strace printed about one scrape: `strace -f -y -s 4096 -e write=all`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use nix::sys::socket::SockProtocol;

use super::call::Call;

/// The traced calls by name; the others (memory, threads, HTTP) are not repeated.
pub const CALLS: &str = "openat,read,pread64,getdents64,close,statx,newfstatat,readlink,readlinkat,statfs,socket,\
                         sendto,recvfrom,write,pwrite64,writev,rename,renameat,renameat2,fsync,fdatasync,unlink,unlinkat";

/// What a descriptor of the traced scrape is.
enum Opened {
    /// The call that opened it, by index.
    Here(usize),
    /// A directory: listed as a whole.
    Directory,
    /// A netlink socket with its protocol, and the call of its last query.
    Netlink(SockProtocol, Option<usize>),
}

/// Calls of one scrape, and the paths that were written.
#[derive(Debug, Default)]
pub struct Trace {
    /// The calls, in the order of their ends.
    pub calls: Vec<Call>,
    /// Files that the process keeps open and reads again, in the order of [`Call::Read`].
    pub kept: Vec<PathBuf>,
    /// Calls that wrote, renamed, synced or removed a file, as strace printed them.
    pub writes: Vec<String>,
    /// Number of all traced calls.
    pub count: usize,
}

impl Trace {
    /// Reads the output of strace. Lines that are no calls are skipped.
    pub fn parse(text: &str) -> Self {
        let (mut trace, mut open) = (Self::default(), BTreeMap::new());
        // The first half of a call that another thread interrupted, by thread.
        let mut halves: BTreeMap<&str, String> = BTreeMap::new();
        let mut request: Option<usize> = None;
        for line in text.lines() {
            if let Some(dump) = line.strip_prefix(" | ") {
                if let Some(Call::Query { request, .. }) = request.and_then(|at| trace.calls.get_mut(at)) {
                    request.extend(bytes(dump));
                }
                continue;
            }
            let Some((thread, call)) = line.split_once(' ') else {
                continue;
            };
            let call = call.trim_start();
            if let Some(half) = call.strip_suffix("<unfinished ...>") {
                halves.insert(thread, half.trim_end().to_owned());
                continue;
            }
            let whole = match call.split_once(" resumed>") {
                Some((_, rest)) => halves.remove(thread).unwrap_or_default() + rest,
                None => call.to_owned(),
            };
            request = trace.add(&whole, &mut open);
        }
        trace
    }

    /// Adds one call. Returns the index of a query whose request follows as a dump.
    fn add(&mut self, line: &str, open: &mut BTreeMap<String, Opened>) -> Option<usize> {
        let (name, rest) = line.split_once('(')?;
        let (arguments, result) = rest.rsplit_once(" = ")?;
        let name = name.trim();
        if !CALLS.split(',').any(|known| known.trim() == name) {
            return None;
        }
        self.count += 1;
        let descriptor = arguments
            .split(['<', ',', ')'])
            .next()
            .unwrap_or_default()
            .to_owned();
        let path = || arguments.split('"').nth(1).map(PathBuf::from);
        match name {
            "openat" => {
                let directory = arguments.contains("O_DIRECTORY") && !arguments.contains("O_LARGEFILE");
                let (number, found) = match result.split_once('<') {
                    Some((number, path)) => (Some(number), PathBuf::from(path.split('>').next()?)),
                    None => (None, base(arguments).join(path()?)),
                };
                let opened = if directory {
                    self.calls.push(Call::List(found));
                    Opened::Directory
                } else {
                    self.calls.push(Call::Open {
                        path: found,
                        reads: 0,
                    });
                    Opened::Here(self.calls.len() - 1)
                };
                open.extend(number.map(|number| (number.to_owned(), opened)));
            }
            "read" | "pread64" => match open.get(&descriptor) {
                Some(Opened::Here(at)) => {
                    if let Some(Call::Open { reads, .. }) = self.calls.get_mut(*at) {
                        *reads += 1;
                    }
                }
                _ => self.read_kept(arguments),
            },
            "close" => {
                open.remove(&descriptor);
            }
            // The status of an open directory belongs to its list.
            "statx" | "newfstatat" if !arguments.contains("AT_EMPTY_PATH") => {
                self.calls.push(Call::Status(base(arguments).join(path()?)));
            }
            "readlink" | "readlinkat" => self.calls.push(Call::Link(base(arguments).join(path()?))),
            "statfs" => self.calls.push(Call::Space(path()?)),
            "socket" if arguments.contains("AF_NETLINK") => {
                let protocol = match arguments.rsplit_once(", ")?.1 {
                    name if name.contains("GENERIC") => SockProtocol::NetlinkGeneric,
                    name if name.contains("DIAG") => SockProtocol::NetlinkSockDiag,
                    _ => SockProtocol::NetlinkRoute,
                };
                open.insert(
                    result.split('<').next()?.to_owned(),
                    Opened::Netlink(protocol, None),
                );
            }
            "sendto" => {
                let Some(Opened::Netlink(protocol, query)) = open.get_mut(&descriptor) else {
                    return None;
                };
                self.calls.push(Call::Query {
                    protocol: *protocol,
                    request: Vec::new(),
                    answers: 0,
                });
                *query = Some(self.calls.len() - 1);
                return *query;
            }
            "recvfrom" => {
                if let Some(Opened::Netlink(_, Some(at))) = open.get(&descriptor)
                    && let Some(Call::Query { answers, .. }) = self.calls.get_mut(*at)
                {
                    *answers += 1;
                }
            }
            "write" | "pwrite64" | "writev" if !arguments.contains("</") => {}
            "write" | "pwrite64" | "writev" | "rename" | "renameat" | "renameat2" | "fsync" | "fdatasync"
            | "unlink" | "unlinkat" => self.writes.push(line.to_owned()),
            _ => {}
        }
        None
    }

    /// A read of a file that was open before the scrape: `34</proc/stat>, …`.
    fn read_kept(&mut self, arguments: &str) {
        let path = arguments
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'));
        let Some((path, _)) = path.filter(|(path, _)| path.starts_with('/')) else {
            return;
        };
        let path = PathBuf::from(path);
        let index = self
            .kept
            .iter()
            .position(|known| *known == path)
            .unwrap_or_else(|| {
                self.kept.push(path);
                self.kept.len() - 1
            });
        let offset = arguments
            .rsplit_once(", ")
            .and_then(|(_, end)| end.trim_end_matches(')').parse().ok());
        self.calls.push(Call::Read {
            kept: index,
            offset: offset.unwrap_or(0),
        });
    }
}

/// The directory of a relative path: `59</sys/class/net/eth0>, "speed"`.
fn base(arguments: &str) -> &Path {
    let directory = arguments
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'));
    directory.map_or(Path::new("/"), |(path, _)| Path::new(path))
}

/// The bytes of a line of a dump: `00000  1c 00 00 00 1e 00 01 03  01 00 …  ........ |`.
fn bytes(line: &str) -> Vec<u8> {
    let Some((_, hex)) = line.split_once("  ") else {
        return Vec::new();
    };
    // 16 bytes with two spaces in the middle take 49 columns.
    let hex = hex.get(..49).unwrap_or(hex);
    hex.split_whitespace()
        .map_while(|digits| {
            (digits.len() == 2)
                .then(|| u8::from_str_radix(digits, 16).ok())
                .flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_several_threads_are_distinguished() {
        let text = "812 pread64(9</proc/stat>, \"cpu\"..., 65536, 0) = 812\n\
            812 pread64(9</proc/stat>, \"\", 65536, 812) = 0\n\
            812 openat(8</sys/class/net/eth0>, \"mtu\", O_RDONLY|O_CLOEXEC) = 10</sys/class/net/eth0/mtu>\n\
            812 read(10</sys/class/net/eth0/mtu>, \"1500\\n\", 64) = 5\n\
            812 close(10</sys/class/net/eth0/mtu>) = 0\n\
            813 openat(AT_FDCWD</>, \"/none\", O_RDONLY <unfinished ...>\n\
            812 statx(AT_FDCWD</>, \"/run/x\", AT_STATX_SYNC_AS_STAT, STATX_ALL, 0x7f) = -1 ENOENT (No such file)\n\
            813 <... openat resumed>) = -1 ENOENT (No such file or directory)\n\
            813 openat(AT_FDCWD</>, \"/sys/block\", O_RDONLY|O_CLOEXEC|O_DIRECTORY) = 11</sys/block>\n\
            813 newfstatat(11</sys/block>, \"\", {st_mode=S_IFDIR}, AT_EMPTY_PATH) = 0\n\
            813 getdents64(11</sys/block>, 0x55 /* 3 entries */, 32768) = 72\n\
            813 close(11</sys/block>) = 0\n\
            813 socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_ROUTE) = 59<socket:[5]>\n\
            813 sendto(59<socket:[5]>, [{nlmsg_len=20}], 20, 0, NULL, 0) = 20\n \
             | 00000  14 00 00 00 12 00 01 03  01 00 00 00 00 00 00 00  ................ |\n \
             | 00010  11 00 00 00                                       ....             |\n\
            813 recvfrom(59<socket:[5]>, [{nlmsg_len=20}], 32768, MSG_TRUNC, NULL, NULL) = 20\n\
            813 read(7<socket:[1234]>, \"\", 64) = 5\n\
            813 write(4</run/virtfleet/x>, \"a\", 1) = 1\n\
            813 write(5<socket:[7]>, \"a\", 1) = 1\n";
        let trace = Trace::parse(text);
        let path = PathBuf::from;
        let read = |offset| Call::Read { kept: 0, offset };
        let mut request = vec![0x14, 0, 0, 0, 0x12, 0, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0];
        request.extend([0x11, 0, 0, 0]);
        assert_eq!(
            trace.calls,
            [
                read(0),
                read(812),
                Call::Open {
                    path: path("/sys/class/net/eth0/mtu"),
                    reads: 1
                },
                Call::Status(path("/run/x")),
                Call::Open {
                    path: path("/none"),
                    reads: 0
                },
                Call::List(path("/sys/block")),
                Call::Query {
                    protocol: SockProtocol::NetlinkRoute,
                    request,
                    answers: 1
                },
            ]
        );
        assert_eq!(trace.kept, [path("/proc/stat")]);
        assert_eq!(trace.writes.len(), 1);
        assert_eq!(trace.count, 17);
    }
}

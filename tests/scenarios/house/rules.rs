//! The lists that the house is held to. Each entry that widens a rule says why.

/// What a crate that only decides may depend on directly: everything else needs a line here, and a
/// reason in the commit.
pub(crate) const PURE_CRATES: &[(&str, &[&str])] = &[
    (
        "virtfleet-agent-core",
        &[
            // Matches text with patterns of the settings; it has no dependency, and touches
            // nothing.
            "regex-lite",
            "serde",
            "serde_json",
            "sha2",
            // Names the nearest known name in an error; it has no dependency, and touches nothing.
            "strsim",
            // Derives only: the words of enums, and lists of their values.
            "strum",
            "thiserror",
            "uuid",
            "virtfleet-wire",
        ],
    ),
    (
        "virtfleet-collector-core",
        &[
            // Keeps reports compressed; bytes in, bytes out.
            "flate2",
            // Hash tables that are searched by borrowed keys; no dependency, touches nothing.
            "hashbrown",
            "ipnet",
            // The hash of relabelling's hashmod, as Prometheus defines it; bytes in, bytes out.
            "md-5",
            // Relabelling rules of tenants: matches in linear time, with limits on size.
            "regex",
            "schemars",
            "serde",
            "serde_json",
            // Derives only: the words of enums, and lists of their values.
            "strum",
            "virtfleet-wire",
        ],
    ),
    (
        "virtfleet-delivery",
        &[
            "base64",
            "flate2",
            "libyaml-safer",
            "schemars",
            "serde",
            "serde_json",
            "virtfleet-wire",
        ],
    ),
    (
        "virtfleet-remote-write",
        // Compression and dates of HTTP: bytes in, bytes out.
        &["httpdate", "prost", "snap", "thiserror", "zstd"],
    ),
    (
        "virtfleet-wire",
        &[
            "saphyr",
            "saphyr-parser",
            "schemars",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "strsim",
            "thiserror",
        ],
    ),
];

/// Longest line of a comment, in characters, with its indentation.
pub(crate) const MAX_COMMENT: usize = 100;

/// Words that the tree had in place of the terms of its field, as regular expressions between word
/// boundaries.
pub(crate) const BANNED_WORDS: &[&str] = &[
    "nobody",
    "nobody's",
    "wish(?:es|ed)?",
    "whose turn",
    "that is none",
    "hears?",
    "heard",
    "g[ia]ves? back",
    "given back",
    "takes? back",
    "what came of",
    "comes? to its end",
    "be it",
    "all the same",
    "no more than",
    "rule of the house",
    "of whom",
    "is told",
    "are told",
];

/// Names of constants that do not say what they bound.
pub(crate) const BANNED_CONSTANTS: &[&str] = &[
    "AGAIN", "AROUND", "AT_ONCE", "CAP", "EVERY", "GAP", "LEAST", "LIMIT", "LINES", "LOOKED", "MANY", "MOST",
    "OFTEN", "PACE", "PATIENCE", "ROUNDS", "SHORT", "SPARED", "TRIES", "WINDOW",
];

/// What is left of banned words, long comments and banned constants, by folder. The numbers only
/// fall.
pub(crate) const LEFT: &[(&str, [usize; 3])] = &[
    ("agent/", [0, 0, 0]),
    ("collector/", [0, 0, 0]),
    ("shared/", [0, 0, 0]),
    // Among the words is the name of the user `nobody`.
    ("tests/", [6, 0, 0]),
    ("", [0, 0, 0]),
];

/// Names of types that more than one file declares. The number only falls.
pub(crate) const DUPLICATE_TYPES: usize = 62;

/// The crates of the agent, each with the crates of the agent that it may depend on: what serves
/// and reports cannot reach what changes the guest.
pub(crate) const AGENT_CRATES: &[(&str, &[&str])] = &[
    ("virtfleet-agent-core", &[]),
    ("virtfleet-agent-host", &["core"]),
    ("virtfleet-agent-state", &["core", "host"]),
    ("virtfleet-agent-metrics", &["core", "host", "state"]),
    ("virtfleet-agent-provision", &["core", "host", "state"]),
    ("virtfleet-agent-service", &["core", "host", "metrics", "state"]),
    (
        "virtfleet-agent",
        &["core", "host", "metrics", "provision", "service", "state"],
    ),
];

/// Source folders of the agent that touch the guest through `virtfleet-agent-host` alone.
pub(crate) const WITHOUT_EFFECTS: &[&str] = &[
    "agent/metrics/src",
    "agent/provision/src",
    "agent/service/src",
    "agent/src",
    "agent/state/src",
];

/// What these folders must not use: files, processes and system calls. The daemon's own sockets are
/// in `service/server`.
pub(crate) const EFFECTS: &[&str] = &[
    "std::fs",
    "fs::",
    "File::open",
    "std::process::Command",
    "OpenOptions",
    "nix::",
    "rustix::",
    "tempfile::",
    "UnixStream",
    "UnixDatagram",
    "TcpStream",
    "UdpSocket",
    ".exists()",
    ".read_link()",
    ".canonicalize()",
    ".metadata()",
    ".symlink_metadata()",
];

/// What must not be reached from such a crate by any road: runtimes, sockets, files, the kernel,
/// Kubernetes.
pub(crate) const IMPURE: &[&str] = &[
    "async-std",
    "axum",
    "hyper",
    "hyper-util",
    "kube",
    "kube-client",
    "libc",
    "mio",
    "nix",
    "notify",
    "reqwest",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "tokio-util",
    "ureq",
];

/// Licences (SPDX) that may be linked into a program under Apache-2.0. Weak copyleft is not among
/// them: nothing needs it.
pub(crate) const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Exceptions (SPDX, after `WITH`) that only widen what is allowed.
pub(crate) const LICENCE_EXCEPTIONS: &[&str] = &["LLVM-exception"];

/// Why crates of RustCrypto come twice.
const OLD_RUSTCRYPTO: &str =
    "rpm is at the line before ours; only in the program that builds the RPM package";

/// Crates that are there in several versions, and why that is borne.
pub(crate) const DUPLICATES: &[(&str, &str)] = &[
    (
        "base64",
        "k8s-openapi and tower-http, both of kube, are at 0.22; we are ahead of them",
    ),
    (
        "bit-vec",
        "proptest and the regular expressions of jsonschema disagree; tests only",
    ),
    ("block-buffer", OLD_RUSTCRYPTO),
    ("cpufeatures", OLD_RUSTCRYPTO),
    ("crypto-common", OLD_RUSTCRYPTO),
    ("digest", OLD_RUSTCRYPTO),
    ("getrandom", "ring is at 0.2, ahash and tempfile are ahead of it"),
    ("hashbrown", "kube-runtime is at 0.16, others are ahead of it"),
    ("nom", "x509-parser is at 7, rpm is ahead of it"),
    (
        "ordered-float",
        "serde-value, of kube, is at 2; saphyr is ahead of it",
    ),
    ("sha1", OLD_RUSTCRYPTO),
    ("sha2", OLD_RUSTCRYPTO),
    (
        "syn",
        "the derive macros are moving from 2 to 3 one by one; build time only",
    ),
];

/// What may stand at the top of the tree beside dotfiles.
pub(crate) const TOP: &[&str] = &[
    "CHANGELOG.md",
    // Repository hosts link to these two only at the top.
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "agent",
    "clippy.toml",
    "cloud-init",
    "collector",
    "docs",
    "packaging",
    "rustfmt.toml",
    "shared",
    "tests",
];

/// Lines that a source file may have. Most should have far fewer.
pub(crate) const LONGEST_SOURCE: usize = 500;

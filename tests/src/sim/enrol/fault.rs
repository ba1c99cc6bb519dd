//! Faults and attacks of an enrolling agent.

/// What an agent does wrong. Everything else is as in an honest agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnrolFault {
    /// Shows another SMBIOS UUID.
    OtherUuid,
    /// Shows another MAC address.
    OtherMac,
    /// Shows another host name.
    OtherHostname,
    /// Has a new key on each connection, and accepts no certificate.
    NewKeys,
    /// Accepts the first certificate, then serves with another key.
    SecondKey,
    /// Answers each request with the CSR of the first one, and accepts no certificate.
    ReplayedCsr,
    /// Its CSR asks for the name of another VM.
    OtherName,
    /// Its CSR is for another key than that of the connection.
    OtherKey,
    /// Never accepts a certificate.
    NeverAccepts,
    /// Throws its certificate away at once, and asks for the next one.
    Forgets,
    /// Answers the request for a CSR one byte at a time.
    Slow,
    /// The answer to the request for a CSR never ends.
    Endless,
    /// Completes TLS and never answers.
    Silent,
    /// Answers the request for a CSR with something else.
    Garbage,
    /// Answers 409 each time.
    ReplacesForever,
    /// Does not replace its key when asked.
    KeepsKey,
    /// Its settings do not ask for enrolment.
    NotOffered,
}

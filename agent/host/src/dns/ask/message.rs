//! Encodes a DNS query and matches received messages to it (RFC 1035, RFC 7766).

use std::{net::IpAddr, str::FromStr as _};

use domain::base::{
    Message, MessageBuilder, Name, Rtype, iana::Class, iana::Opcode, iana::Rcode, name::ToName as _,
};
use domain::rdata::{A, Aaaa};
use virtfleet_agent_core::dns::answers::{ECHO, Purpose, QueryOutcome, Question, Transport};

/// An encoded query and what an answer to it must contain.
#[derive(Debug)]
pub struct QueryMessage {
    id: u16,
    name: Name<Vec<u8>>,
    kind: Rtype,
    transport: Transport,
    bytes: Vec<u8>,
}

/// Classification of a received message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Answer(QueryOutcome),
    /// It is not an answer, for this reason. Anyone could have sent it, so the answer may still
    /// arrive.
    Other(&'static str),
}

impl QueryMessage {
    /// Encodes a query. It asks for addresses of the nameserver's own family, because an IPv6-only
    /// cluster has no others. Like glibc's default it has no EDNS, which some forwarders reject.
    ///
    /// `random` provides the id and, for [`Purpose::Random`], the label before the name.
    ///
    /// # Errors
    /// Why the name cannot be queried.
    pub fn new(question: &Question, random: [u8; 8]) -> Result<Self, String> {
        let [high, low, label @ ..] = random;
        let id = u16::from_be_bytes([high, low]);
        let text = match question.purpose {
            Purpose::Random => format!("{}.{}", random_label(label), question.name),
            Purpose::Cluster | Purpose::Named => question.name.clone(),
        };
        let refuse = |why: String| format!("{text:?} was not queried: {why}");
        let name = Name::<Vec<u8>>::from_str(text.trim_end_matches('.'))
            .map_err(|error| refuse(error.to_string()))?;
        let kind = match question.nameserver {
            IpAddr::V4(_) => Rtype::A,
            IpAddr::V6(_) => Rtype::AAAA,
        };
        Self::encode(name, kind, id, question.transport).map_err(refuse)
    }

    /// Encodes a query for the IPv4 or the IPv6 addresses of a name.
    ///
    /// # Errors
    /// Why the name cannot be queried.
    pub fn for_addresses(name: &str, ipv6: bool, transport: Transport, id: u16) -> Result<Self, String> {
        let name = Name::<Vec<u8>>::from_str(name).map_err(|error| error.to_string())?;
        let kind = if ipv6 { Rtype::AAAA } else { Rtype::A };
        Self::encode(name, kind, id, transport)
    }

    fn encode(name: Name<Vec<u8>>, kind: Rtype, id: u16, transport: Transport) -> Result<Self, String> {
        let mut builder = MessageBuilder::new_vec().question();
        builder.header_mut().set_id(id);
        builder.header_mut().set_rd(true);
        builder
            .push((&name, kind, Class::IN))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            id,
            name,
            kind,
            transport,
            bytes: builder.finish(),
        })
    }

    /// The message without the TCP length prefix.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Classifies received bytes, which are untrusted.
    pub fn read(&self, bytes: &[u8]) -> Verdict {
        let Ok(message) = Message::from_octets(bytes) else {
            return Verdict::Other("shorter than a DNS message");
        };
        let header = message.header();
        if header.id() != self.id {
            return Verdict::Other("the id of another query");
        }
        if !header.qr() {
            // The query itself came back: a loop or a reflector.
            return Verdict::Other(if self.repeats_question(message) {
                ECHO
            } else {
                "a query instead of an answer"
            });
        }
        if header.opcode() != Opcode::QUERY {
            return Verdict::Other("an answer to an operation other than QUERY");
        }
        let code = header.rcode();
        let conclusive = code == Rcode::NOERROR || code == Rcode::NXDOMAIN;
        // A nameserver that refuses may omit the question.
        let bare = message.header_counts().qdcount() == 0;
        if !(self.repeats_question(message) || (bare && !conclusive)) {
            return Verdict::Other("an answer to another question");
        }
        Verdict::Answer(if header.tc() && self.transport == Transport::Udp {
            QueryOutcome::Truncated
        } else if header.tc() {
            malformed_answer("a truncated answer over TCP")
        } else if code == Rcode::NXDOMAIN {
            QueryOutcome::NoSuchName
        } else if code == Rcode::NOERROR {
            self.addresses(message).map_or_else(
                || malformed_answer("an answer whose records cannot be read"),
                |count| QueryOutcome::Addresses { count },
            )
        } else {
            QueryOutcome::Code {
                code: code.to_string(),
            }
        })
    }

    /// The addresses in an answer for which [`QueryMessage::read`] returned a number of them.
    pub fn found_addresses(&self, bytes: &[u8]) -> Vec<IpAddr> {
        let Ok(message) = Message::from_octets(bytes) else {
            return Vec::new();
        };
        let Ok(answers) = message.answer() else {
            return Vec::new();
        };
        if self.kind == Rtype::A {
            let records = answers.limit_to_in::<A>().flatten();
            records.map(|record| IpAddr::V4(record.data().addr())).collect()
        } else {
            let records = answers.limit_to_in::<Aaaa>().flatten();
            records.map(|record| IpAddr::V6(record.data().addr())).collect()
        }
    }

    fn repeats_question(&self, message: Message<&[u8]>) -> bool {
        message.sole_question().is_ok_and(|question| {
            question.qtype() == self.kind
                && question.qclass() == Class::IN
                && question.qname().name_eq(&self.name)
        })
    }

    /// Number of addresses in the answer, for any alias. `None` if a record cannot be parsed.
    fn addresses(&self, message: Message<&[u8]>) -> Option<usize> {
        let mut count = 0;
        for record in message.answer().ok()? {
            let record = record.ok()?;
            count += usize::from(record.rtype() == self.kind && record.class() == Class::IN);
        }
        Some(count)
    }
}

pub(super) fn malformed_answer(reason: &str) -> QueryOutcome {
    QueryOutcome::Garbled {
        reason: reason.to_owned(),
    }
}

/// A prefix that identifies the sender in the nameserver's log, and 48 random bits so that no cache
/// has the name.
fn random_label(bytes: [u8; 6]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold("virtfleet-".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(purpose: Purpose, name: &str) -> Result<QueryMessage, String> {
        let question = Question {
            nameserver: "192.0.2.1".parse().unwrap(),
            zone: None,
            transport: Transport::Udp,
            purpose,
            name: name.to_owned(),
        };
        QueryMessage::new(&question, [0x12, 0x34, 1, 2, 3, 4, 5, 0xff])
    }

    #[test]
    fn the_message_is_encoded_as_in_rfc_1035() {
        let asked = asked(Purpose::Random, "cluster.local.").unwrap();
        let mut expected =
            b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x16virtfleet-0102030405ff\x07cluster\x05local\0".to_vec();
        expected.extend([0, 1, 0, 1]);
        assert_eq!(asked.bytes, expected);
    }

    #[test]
    fn invalid_names_are_not_queried() {
        for name in ["a..b", &"x".repeat(64), &"abcdefgh.".repeat(30)] {
            let error = asked(Purpose::Named, name).unwrap_err();
            assert!(error.contains("was not queried"), "{error}");
        }
    }

    #[test]
    fn only_the_answer_to_this_query_is_accepted() {
        let asked = asked(Purpose::Named, "Example.com").unwrap();
        let answer = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = asked.bytes.clone();
            bytes[2] |= 0x80;
            change(&mut bytes);
            asked.read(&bytes)
        };
        assert_eq!(
            answer(&|_| ()),
            Verdict::Answer(QueryOutcome::Addresses { count: 0 })
        );
        assert_eq!(
            answer(&|bytes| bytes[13] = b'e'),
            Verdict::Answer(QueryOutcome::Addresses { count: 0 })
        );
        assert_eq!(
            answer(&|bytes| bytes[3] = 3),
            Verdict::Answer(QueryOutcome::NoSuchName)
        );
        let refused = QueryOutcome::Code {
            code: "REFUSED".to_owned(),
        };
        assert_eq!(answer(&|bytes| bytes[3] = 5), Verdict::Answer(refused.clone()));
        let bare = |bytes: &mut Vec<u8>, code: u8| {
            bytes.truncate(12);
            (bytes[3], bytes[5]) = (code, 0);
        };
        assert_eq!(answer(&|bytes| bare(bytes, 5)), Verdict::Answer(refused));
        assert_eq!(
            answer(&|bytes| bare(bytes, 3)),
            Verdict::Other("an answer to another question")
        );
        assert_eq!(
            answer(&|bytes| bytes[2] |= 2),
            Verdict::Answer(QueryOutcome::Truncated)
        );
        assert_eq!(
            answer(&|bytes| bytes[0] = 0),
            Verdict::Other("the id of another query")
        );
        assert_eq!(answer(&|bytes| bytes[2] = 1), Verdict::Other(ECHO));
        assert_eq!(
            answer(&|bytes| bytes[14] = b'y'),
            Verdict::Other("an answer to another question")
        );
        assert_eq!(
            answer(&|bytes| bytes.truncate(4)),
            Verdict::Other("shorter than a DNS message")
        );
        assert_eq!(
            answer(&|bytes| bytes[7] = 9),
            Verdict::Answer(malformed_answer("an answer whose records cannot be read"))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..600), keep in 0usize..30) {
            let asked = asked(Purpose::Cluster, "kubernetes.default.svc.cluster.local").unwrap();
            asked.read(&bytes);
            // With a valid beginning, so that the bytes after the question are parsed too.
            let mut near = asked.bytes.clone();
            near[2] |= 0x80;
            near[7] = bytes.first().copied().unwrap_or(1);
            near.truncate(near.len().saturating_sub(keep.saturating_sub(20)));
            near.extend(&bytes);
            asked.read(&near);
        }
    }
}

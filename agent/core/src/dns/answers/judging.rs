//! Derives the health of one nameserver from its answers.

use std::net::IpAddr;

use super::{Answer, ECHO, Health, Purpose, QueryOutcome, SLOW_MICROS, Transport};
use crate::dns::{
    asked::Asked,
    collision::{self, CollisionKind},
    effective::effective,
    inherited::inherited,
    seen::Seen,
};

/// Returns the health and its reason in one sentence. The most serious problem is checked first.
pub(super) fn health(asked: &Asked, seen: &Seen, nameserver: IpAddr, answers: &[Answer]) -> (Health, String) {
    let all = Answers(answers);
    lying(&all)
        .or_else(|| looping(asked, seen, nameserver, &all))
        .or_else(|| dead(&all))
        .or_else(|| failing(&all))
        .or_else(|| transport(&all))
        .or_else(|| incomplete(asked, nameserver, &all))
        .unwrap_or_else(|| speed(&all))
}

type Verdict = Option<(Health, String)>;

struct Answers<'a>(&'a [Answer]);

impl<'a> Answers<'a> {
    fn of(&self, purpose: Purpose) -> impl Iterator<Item = &'a Answer> {
        self.0
            .iter()
            .filter(move |answer| answer.question.purpose == purpose)
    }

    fn by(&self, transport: Transport) -> impl Iterator<Item = &'a Answer> {
        self.0
            .iter()
            .filter(move |answer| answer.question.transport == transport)
    }

    fn all(&self, test: impl Fn(&QueryOutcome) -> bool) -> bool {
        self.0.iter().all(|answer| test(&answer.outcome))
    }

    /// Describes the result of the first query.
    fn first(&self) -> String {
        self.0.first().map_or_else(
            || "no query was sent".to_owned(),
            |answer| answer.outcome.to_string(),
        )
    }
}

/// Whether the answer shows that the name exists or does not exist.
fn knows(outcome: &QueryOutcome) -> bool {
    matches!(outcome, QueryOutcome::Addresses { .. } | QueryOutcome::NoSuchName)
}

fn lying(all: &Answers<'_>) -> Verdict {
    let lie = all
        .of(Purpose::Random)
        .find(|answer| matches!(answer.outcome, QueryOutcome::Addresses { count } if count > 0))?;
    let name = &lie.question.name;
    Some((
        Health::Lying,
        format!("returns {} for a nonexistent name below {name}", lie.outcome),
    ))
}

/// Detects a loop by one of two signs. The query itself was returned. Or: the address is the
/// guest's own and of a kind that forwards to the guest's nameservers, it is one of these, a
/// process listens there, and every query failed or timed out.
fn looping(asked: &Asked, seen: &Seen, nameserver: IpAddr, all: &Answers<'_>) -> Verdict {
    let echo = |outcome: &QueryOutcome| matches!(outcome, QueryOutcome::Garbled { reason } if reason == ECHO);
    if all.0.iter().any(|answer| echo(&answer.outcome)) {
        return Some((Health::Looping, ECHO.to_owned()));
    }
    let in_vain = |outcome: &QueryOutcome| match outcome {
        QueryOutcome::Timeout => true,
        QueryOutcome::Code { code } => code == "SERVFAIL",
        _ => false,
    };
    // The cluster's own name is no sign: the user cluster's cache may know it without forwarding.
    let forwarded: Vec<_> = all
        .0
        .iter()
        .filter(|answer| answer.question.purpose != Purpose::Cluster)
        .collect();
    // A cache that is overloaded by its own queries refuses some over TCP; only UDP is significant.
    let mut datagrams = forwarded
        .iter()
        .filter(|answer| answer.question.transport == Transport::Udp)
        .peekable();
    let vain = datagrams.peek().is_some()
        && datagrams.all(|answer| in_vain(&answer.outcome))
        && !forwarded.iter().any(|answer| knows(&answer.outcome));
    let origin = [(nameserver, String::new())];
    let collision = collision::find(asked, seen, &origin)
        .into_iter()
        .find(|one| one.now)?;
    let listens = collision.kind == CollisionKind::Stub
        || seen
            .listeners
            .iter()
            .any(|at| at.to_canonical() == nameserver || at.is_unspecified());
    let forwards_to_itself = effective(seen).nameservers.contains(&nameserver)
        || inherited(seen).0.nameservers.contains(&nameserver);
    (vain && listens && forwards_to_itself).then(|| {
        let because = format!(
            "{nameserver} is this guest's own address ({}), a process listens there, it is configured as the nameserver to forward to, and: {}",
            collision.with,
            all.first()
        );
        (Health::Looping, because)
    })
}

fn dead(all: &Answers<'_>) -> Verdict {
    let silent =
        |outcome: &QueryOutcome| matches!(outcome, QueryOutcome::Timeout | QueryOutcome::Unreachable { .. });
    all.all(silent).then(|| (Health::Dead, all.first()))
}

fn failing(all: &Answers<'_>) -> Verdict {
    if all.0.iter().any(|answer| knows(&answer.outcome)) {
        return None;
    }
    let what = all
        .0
        .iter()
        .map(|answer| &answer.outcome)
        .find(|outcome| !matches!(outcome, QueryOutcome::Timeout | QueryOutcome::Unreachable { .. }))?;
    Some((Health::Failing, format!("returns only errors: {what}")))
}

fn transport(all: &Answers<'_>) -> Verdict {
    let works = |answer: &Answer| answer.outcome.is_answer() && answer.outcome != QueryOutcome::Truncated;
    let udp: Vec<_> = all.by(Transport::Udp).collect();
    let tcp: Vec<_> = all.by(Transport::Tcp).collect();
    if !udp.is_empty() && !udp.iter().any(|answer| works(answer)) && tcp.iter().any(|answer| works(answer)) {
        let what = &udp[0].outcome;
        return Some((Health::TcpOnly, format!("answers over TCP; over UDP: {what}")));
    }
    if !tcp.is_empty() && !tcp.iter().any(|answer| works(answer)) {
        let what = &tcp[0].outcome;
        return Some((Health::NoTcp, format!("answers over UDP; over TCP: {what}")));
    }
    None
}

fn incomplete(asked: &Asked, nameserver: IpAddr, all: &Answers<'_>) -> Verdict {
    let found = |answer: &&Answer| {
        matches!(answer.outcome, QueryOutcome::Addresses { count } if count > 0)
            || answer.outcome == QueryOutcome::Truncated
    };
    let of_cluster = asked.cluster_first() && asked.cluster_nameservers.contains(&nameserver);
    let missed = all
        .of(Purpose::Named)
        .chain(all.of(Purpose::Cluster).filter(|_| of_cluster))
        .find(|answer| !found(answer));
    if let Some(answer) = missed {
        let name = &answer.question.name;
        return Some((
            Health::Incomplete,
            format!("answers, but for {name}: {}", answer.outcome),
        ));
    }
    // A nameserver that returned an error may have got a query below another name, too.
    let first = all.of(Purpose::Random).next().map(|answer| &answer.question.name);
    let random: Vec<_> = all
        .of(Purpose::Random)
        .filter(|answer| Some(&answer.question.name) == first)
        .collect();
    let none = !random.is_empty() && !random.iter().any(|answer| knows(&answer.outcome));
    none.then(|| {
        let question = &random[0].question;
        let what = &random[0].outcome;
        (
            Health::Incomplete,
            format!("answers, but for a random name below {}: {what}", question.name),
        )
    })
}

fn speed(all: &Answers<'_>) -> (Health, String) {
    let least = all
        .0
        .iter()
        .filter(|answer| answer.outcome.is_answer())
        .map(|answer| answer.micros)
        .min()
        .unwrap_or_default();
    let ms = least.div_ceil(1000);
    if least > SLOW_MICROS {
        (Health::Slow, format!("its fastest answer took {ms} ms"))
    } else {
        (Health::Healthy, format!("answers in {ms} ms"))
    }
}

//! The tree of a text: the events of libyaml, with the rules of PyYAML's `composer.py` and
//! `constructor.py`.

use std::collections::{HashMap, HashSet};

use libyaml_safer::{
    Encoding, Event, EventData, MAP_TAG, MappingStyle, Parser, SEQ_TAG, STR_TAG, ScalarStyle as Style,
    SequenceStyle,
};

use super::{
    refusal::{DIRECTIVES, Result, cannot_load, not_supported},
    source,
    value::{self, Kind},
};

/// Maximum nesting depth of collections, also of those that aliases refer to. The code is
/// recursive, in PyYAML and cloud-init too.
const MAX_DEPTH: usize = 100;
/// Maximum bytes of all that aliases refer to: aliases of aliases, and merges of merges, grow
/// exponentially.
const MAX_ALIASED: usize = 1_000_000;
const BINARY_TAG: &str = "tag:yaml.org,2002:binary";

/// The only document of a text.
#[derive(Debug)]
pub(crate) struct YamlDocument<'t> {
    /// Its content; none if it is empty or null.
    pub(crate) root: Option<YamlNode<'t>>,
    /// The line on which it begins.
    pub(crate) line: usize,
    /// Keys that occur twice in one mapping, with the line of the second.
    pub(crate) repeated: Vec<(usize, &'t str)>,
}

/// A node. Nodes with equal source text are equal, wherever they are.
#[derive(Debug, Clone)]
pub(crate) struct YamlNode<'t> {
    pub(crate) anchor: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) content: Content<'t>,
    /// The line on which it begins.
    pub(crate) line: usize,
    /// The value of a scalar, as libyaml reads it; see [`source::changed_line`].
    pub(crate) value: String,
}

impl PartialEq for YamlNode<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.anchor == other.anchor && self.tag == other.tag && self.content == other.content
    }
}

impl Eq for YamlNode<'_> {}

/// Content of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content<'t> {
    /// A reference to an anchor, and what that is.
    Alias(String, Shape),
    /// A scalar with its source text.
    Scalar(Style, &'t str),
    Sequence(Vec<YamlNode<'t>>),
    Mapping(Vec<(YamlNode<'t>, YamlNode<'t>)>),
}

/// A node as it is after its aliases are replaced by what they refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    kind: Kind,
    /// Levels of nesting, 1 for a scalar.
    depth: usize,
    /// One for each node, and the bytes of its scalars.
    size: usize,
}

impl Shape {
    /// That of a collection of these nodes.
    fn around<'n, 't: 'n>(kind: Kind, nodes: impl Iterator<Item = &'n YamlNode<'t>>) -> Self {
        let empty = Self {
            kind,
            depth: 1,
            size: 1,
        };
        nodes.map(YamlNode::shape).fold(empty, |whole, node| Self {
            kind,
            depth: whole.depth.max(node.depth + 1),
            size: whole.size.saturating_add(node.size),
        })
    }
}

impl<'t> YamlNode<'t> {
    /// The text of a string on one line without escapes. Here, plain numbers are text, too.
    pub(crate) fn text(&self) -> Option<&'t str> {
        let Content::Scalar(style, source) = self.content else {
            return None;
        };
        let (text, escape) = match style {
            Style::Plain => (source, "\n"),
            Style::SingleQuoted => (&source[1..source.len() - 1], "'"),
            Style::DoubleQuoted => (&source[1..source.len() - 1], "\\"),
            _ => return None,
        };
        let simple = !text.contains(escape) && !text.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
        (simple && matches!(self.tag.as_deref(), None | Some(STR_TAG))).then_some(text)
    }

    /// Whether this, as a key, merges its value into the mapping.
    pub(crate) fn merges(&self) -> bool {
        self.tag.is_none() && self.content == Content::Scalar(Style::Plain, "<<")
    }

    /// What PyYAML makes of it.
    pub(crate) fn kind(&self) -> Kind {
        match &self.content {
            Content::Alias(_, shape) => shape.kind,
            Content::Scalar(style, source) => match self.tag.as_deref() {
                None if *style == Style::Plain => value::kind(source),
                None | Some(STR_TAG) => Kind::Text,
                Some(_) => Kind::Other,
            },
            Content::Sequence(items) if items.iter().all(|item| item.kind() == Kind::Mapping) => {
                Kind::Mappings
            }
            Content::Sequence(_) => Kind::Sequence,
            Content::Mapping(_) => Kind::Mapping,
        }
    }

    fn shape(&self) -> Shape {
        match &self.content {
            Content::Alias(_, shape) => *shape,
            Content::Scalar(_, source) => Shape {
                kind: self.kind(),
                depth: 1,
                size: source.len() + 1,
            },
            Content::Sequence(items) => Shape::around(self.kind(), items.iter()),
            Content::Mapping(entries) => {
                let nodes = entries.iter().flat_map(|(key, value)| [key, value]);
                Shape::around(Kind::Mapping, nodes)
            }
        }
    }
}

struct Loader<'t, 'l> {
    text: &'t str,
    events: Parser<&'l [u8]>,
    /// Offset up to which the source text has been checked.
    checked: usize,
    depth: usize,
    /// How many collections in brackets are open.
    flows: usize,
    /// Bytes of all that aliases refer to.
    aliased: usize,
    /// None: its node is not complete.
    anchors: HashMap<String, Option<Shape>>,
    repeated: Vec<(usize, &'t str)>,
}

/// The only document of a text; `changed` is what libyaml reads.
pub(super) fn document<'t>(text: &'t str, changed: &str) -> Result<YamlDocument<'t>> {
    let mut events = Parser::new();
    events.set_encoding(Encoding::Utf8);
    events.set_input(changed.as_bytes());
    let mut loader = Loader {
        text,
        events,
        checked: 0,
        depth: 0,
        flows: 0,
        aliased: 0,
        anchors: HashMap::new(),
        repeated: Vec::new(),
    };
    loader.event()?; // The beginning of the stream.
    let first = loader.event()?;
    let mut line = source::line(first.start_mark);
    let mut root = None;
    if first.data != EventData::StreamEnd {
        if text[source::offset(text, first.start_mark)..].starts_with('%') {
            return not_supported(line, DIRECTIVES);
        }
        let event = loader.event()?;
        line = source::line(event.start_mark);
        root = Some(loader.node(event, false)?);
        loader.event()?; // The end of the document.
        let after = loader.event()?;
        if after.data != EventData::StreamEnd {
            let line = source::line(after.start_mark);
            return cannot_load(line, "a second document starts here; cloud-init reads only one");
        }
    }
    source::check_between(text, loader.checked, text.len())?;
    Ok(YamlDocument {
        root: root.filter(|root| root.kind() != Kind::Null),
        line,
        repeated: loader.repeated,
    })
}

impl<'t> Loader<'t, '_> {
    fn event(&mut self) -> Result<Event> {
        let event = self.events.parse();
        event.or_else(|error| source::refuse(self.text, &error))
    }

    /// The node that begins with this event, which may be a key.
    fn node(&mut self, event: Event, key: bool) -> Result<YamlNode<'t>> {
        let line = source::line(event.start_mark);
        let start = source::offset(self.text, event.start_mark);
        let end = source::offset(self.text, event.end_mark);
        let mut data = event.data;
        let (anchor, tag) = match &mut data {
            EventData::Scalar { anchor, tag, .. }
            | EventData::SequenceStart { anchor, tag, .. }
            | EventData::MappingStart { anchor, tag, .. } => (anchor.take(), tag.take()),
            _ => (None, None),
        };
        if let Some(name) = &anchor
            && self.anchors.insert(name.clone(), None).is_some()
        {
            return cannot_load(line, format_args!("a second &{name}; an anchor can be set once"));
        }
        let flow = matches!(data, EventData::SequenceStart { style, .. } if style == SequenceStyle::Flow)
            || matches!(data, EventData::MappingStart { style, .. } if style == MappingStyle::Flow);
        self.flows += usize::from(flow);
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return not_supported(line, format_args!("more than {MAX_DEPTH} levels of nesting"));
        }
        let mut text = String::new();
        let content = match data {
            EventData::Alias { anchor: name } => match self.anchors.get(&name).copied() {
                Some(Some(shape)) => {
                    self.aliased = self.aliased.saturating_add(shape.size);
                    if self.aliased > MAX_ALIASED {
                        return not_supported(
                            line,
                            format_args!("more than {MAX_ALIASED} bytes behind aliases"),
                        );
                    }
                    // The alias itself is counted in both.
                    if self.depth + shape.depth > MAX_DEPTH + 1 {
                        let what = format_args!("more than {MAX_DEPTH} levels of nesting, with aliases");
                        return not_supported(line, what);
                    }
                    Content::Alias(name, shape)
                }
                Some(None) => return not_supported(line, format_args!("*{name} inside of &{name}")),
                None => return cannot_load(line, format_args!("*{name} without &{name} before it")),
            },
            EventData::Scalar { value, style, .. } => {
                text = value;
                let mut source = &self.text[start..end];
                for _ in 0..usize::from(anchor.is_some()) + usize::from(tag.is_some()) {
                    source = source::behind_property(source);
                }
                self.scalar(style, source, end)?
            }
            EventData::SequenceStart { .. } => self.sequence()?,
            EventData::MappingStart { .. } => self.mapping(flow && self.text[start..].starts_with('?'))?,
            _ => return cannot_load(line, "nothing can be here"),
        };
        self.depth -= 1;
        self.flows -= usize::from(flow);
        let node = YamlNode {
            anchor,
            tag,
            content,
            line,
            value: text,
        };
        check(&node, key)?;
        if let Some(name) = &node.anchor {
            self.anchors.insert(name.clone(), Some(node.shape()));
        }
        Ok(node)
    }

    /// A scalar with this source, which ends at an offset.
    fn scalar(&mut self, style: Style, source: &'t str, end: usize) -> Result<Content<'t>> {
        let start = end - source.len();
        if !source.is_empty() {
            source::check_between(self.text, self.checked, start)?;
            self.checked = end;
        }
        match style {
            Style::SingleQuoted | Style::DoubleQuoted => {}
            Style::Plain => source::check_plain(self.text, start, source, self.flows > 0)?,
            _ => source::check_header(self.text, start, source)?,
        }
        Ok(Content::Scalar(style, source))
    }

    fn sequence(&mut self) -> Result<Content<'t>> {
        let mut items = Vec::new();
        loop {
            let event = self.event()?;
            if event.data == EventData::SequenceEnd {
                break;
            }
            items.push(self.node(event, false)?);
        }
        Ok(Content::Sequence(items))
    }

    /// The rest of a mapping, which may be a pair in a list that begins with `?`.
    fn mapping(&mut self, pair: bool) -> Result<Content<'t>> {
        let mut entries: Vec<(YamlNode<'t>, YamlNode<'t>)> = Vec::new();
        let mut texts = HashSet::new();
        loop {
            let event = self.event()?;
            if event.data == EventData::MappingEnd {
                break;
            }
            let line = source::line(event.start_mark);
            // libyaml then skips the next token, even a bracket.
            if pair && event.start_mark == event.end_mark {
                return not_supported(line, "`?` without a key in a list");
            }
            let key = self.node(event, true)?;
            let event = self.event()?;
            let value = self.node(event, false)?;
            match key.kind() {
                Kind::Text if key.merges() => {
                    if !matches!(value.kind(), Kind::Mapping | Kind::Mappings) {
                        return cannot_load(line, "`<<` needs a mapping or a list of mappings");
                    }
                }
                Kind::Text => {
                    if let Some(text) = key.text()
                        && !texts.insert(text)
                    {
                        self.repeated.push((line, text));
                    }
                }
                // cloud-init sorts the keys to store them as JSON, and fails if they are mixed.
                Kind::Null | Kind::Other => {
                    return not_supported(
                        line,
                        "a key that YAML takes for no text (1, yes, ~, a date); quote it",
                    );
                }
                Kind::Mapping | Kind::Mappings | Kind::Sequence => {
                    return cannot_load(line, "a list or a mapping as a key");
                }
            }
            entries.push((key, value));
        }
        Ok(Content::Mapping(entries))
    }
}

/// Refuses a node that PyYAML cannot construct.
fn check(node: &YamlNode<'_>, key: bool) -> Result<()> {
    let (text, line) = (node.value.as_str(), node.line);
    match (node.tag.as_deref(), &node.content) {
        (None, Content::Scalar(Style::Plain, source @ ("=" | "<<"))) if !key => {
            cannot_load(line, format_args!("`{source}` as a value; quote it"))
        }
        (None, Content::Scalar(Style::Plain, source @ ("=" | "<<"))) if node.anchor.is_some() => {
            not_supported(line, format_args!("an anchor at the key `{source}`"))
        }
        (None, Content::Scalar(Style::Plain, _)) => value::check_plain(text, line),
        (Some(BINARY_TAG), Content::Scalar(..)) => value::check_binary(text, line),
        (None, _)
        | (Some(STR_TAG), Content::Scalar(..))
        | (Some(SEQ_TAG), Content::Sequence(_))
        | (Some(MAP_TAG), Content::Mapping(_)) => Ok(()),
        (Some(tag), _) => {
            let tag = tag.replace("tag:yaml.org,2002:", "!!");
            let why = "and most tags make cloud-init drop the whole text; remove it";
            not_supported(line, format_args!("the tag {tag} here, {why}"))
        }
    }
}

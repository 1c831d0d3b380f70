//! Carries out a question: one row group after the other, of each only the columns that it needs.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use skua_flow::FlowKey;

use super::{
    FIELDS, NAMES, Question,
    answer::{Answer, FieldValue, Group, Sums},
    condition::Condition,
    field::{Field, Side, Source},
    packet::{self, Addresses},
};
use crate::{
    batch::{Data, NO_TEXT, NULL, Texts},
    error::{LakeError, Result},
    file::File,
    lake::{Lake, hours},
    schema::{Kind, Table, flow, service},
};

/// Shown for unknown names.
const UNKNOWN: &str = "(unknown)";
/// Shown for processes outside of containers.
const HOST: &str = "(host)";
/// Most attempts of a query whose files were compacted or deleted meanwhile.
const ATTEMPTS: usize = 4;

type Key = [i64; FIELDS];

impl Lake {
    /// Answers a query.
    ///
    /// # Errors
    ///
    /// If the storage fails, or the answer would exceed its memory limit. Damaged files are skipped and
    /// listed in the answer.
    pub fn ask(&self, question: &Question) -> Result<Answer> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Execution::new(question).all(self) {
                Err(error) if error.is_gone() && attempts < ATTEMPTS => {}
                answer => return answer,
            }
        }
    }
}

/// A running query.
struct Execution<'q> {
    question: &'q Question,
    texts: Texts,
    addresses: Addresses,
    groups: HashMap<Key, Sums, RandomState>,
    /// For each condition, results by number of the text: 0 unknown, 1 matches, 2 does not.
    held: Vec<Vec<u8>>,
    /// Addresses of the packet filter, as conditions.
    hints: Vec<Condition>,
    /// Whether each point counts by itself: the question is about points.
    points: bool,
    /// Whether only a name of the point of the last row that matched had the text that is searched.
    at_point: bool,
    answer: Answer,
    /// Times of the first row and of the last, whether they match or not.
    observed: [i64; 2],
}

/// Columns of a row group, with those of a side.
struct Rows<'a> {
    columns: &'a [Data],
    table: Table,
}

impl Rows<'_> {
    fn number(&self, row: usize, column: usize) -> i64 {
        match &self.columns[column] {
            Data::Numbers(values) => values.get(row).copied().unwrap_or(NULL),
            Data::Texts(values) => values.get(row).copied().unwrap_or(NO_TEXT).into(),
            Data::Lists(..) => NULL,
        }
    }

    fn is_known(&self, row: usize, column: usize) -> bool {
        let missing = match &self.columns[column] {
            Data::Texts(_) => NO_TEXT.into(),
            _ => NULL,
        };
        self.number(row, column) != missing
    }

    fn count(&self, row: usize, column: usize) -> u64 {
        self.number(row, column).max(0).cast_unsigned()
    }

    /// The number in a row, or the number of its text.
    fn value(&self, row: usize, field: &Field, view: Side, server: Option<Side>) -> i64 {
        let nothing = if field.kind == Kind::Text {
            NO_TEXT.into()
        } else {
            NULL
        };
        match field.source {
            Source::Column(column) => self.number(row, column),
            Source::Either(of_a) => self.number(row, view.column(of_a)),
            Source::Server(of_a) => {
                server.map_or(nothing, |side| self.number(row, side.column(of_a)))
            }
            Source::Client(of_a) => {
                server.map_or(nothing, |side| self.number(row, side.other().column(of_a)))
            }
            Source::Time(length) => {
                let time = self.number(row, self.table.time());
                time - time.rem_euclid(length)
            }
        }
    }
}

impl<'q> Execution<'q> {
    fn new(question: &'q Question) -> Self {
        let addresses = question.filter.iter().flat_map(|filter| &filter.addresses);
        Self {
            question,
            texts: Texts::default(),
            addresses: Addresses::default(),
            groups: HashMap::default(),
            held: vec![Vec::new(); question.conditions.rows.len()],
            hints: addresses
                .filter_map(|address| Condition::address(question.table, *address).ok())
                .collect(),
            points: {
                let conditions = question.conditions.rows.iter();
                let conditions = conditions.filter(|condition| !condition.is_search());
                let conditions = conditions.flat_map(|condition| &condition.fields);
                question.by.iter().chain(conditions).any(Field::is_of_point)
            },
            at_point: false,
            answer: Answer {
                by: Answer::fields(&question.by),
                ..Answer::default()
            },
            observed: [i64::MAX, i64::MIN],
        }
    }

    fn all(mut self, lake: &Lake) -> Result<Answer> {
        let Question {
            table,
            since,
            until,
            ..
        } = *self.question;
        if since < until {
            let (files, _) = lake.files(table, Some(hours(since, until)))?;
            for found in files {
                let file = match File::open(lake.storage.as_ref(), &found.name, found.size) {
                    Ok(file) => file,
                    Err(error) => {
                        self.missing(error)?;
                        continue;
                    }
                };
                self.answer.files += 1;
                for group in 0..file.groups() {
                    if let Err(error) = self.group(&file, group) {
                        self.missing(error)?;
                    }
                }
            }
        }
        Ok(self.finish())
    }

    /// Records damage; any other error is returned.
    fn missing(&mut self, error: LakeError) -> Result<()> {
        match error {
            LakeError::Damaged { .. } => {
                self.answer.damaged.push(error.to_string());
                Ok(())
            }
            error => Err(error),
        }
    }

    fn group(&mut self, file: &File<'_>, group: usize) -> Result<()> {
        let question = self.question;
        let table = question.table;
        let times = file.number_range(group, table.time());
        let mut wanted =
            times.is_none_or(|(first, last)| first < question.until && last >= question.since);
        self.observe(file, group);
        for condition in question.conditions.rows.iter().chain(&self.hints) {
            wanted = wanted && condition.may_hold(file, table, group)?;
        }
        if !wanted {
            self.answer.pruned += 1;
            return Ok(());
        }
        // Decode all columns before counting: of a damaged group nothing is counted.
        let mut columns: Vec<Data> = table.columns().iter().map(|c| Data::new(c.kind)).collect();
        for column in needed(question) {
            file.read(group, column, &mut self.texts, &mut columns[column])?;
            self.bound()?;
        }
        self.answer.read += 1;
        let rows = Rows {
            columns: &columns,
            table,
        };
        for row in 0..file.rows(group) {
            let time = rows.number(row, table.time());
            if (question.since..question.until).contains(&time) {
                self.row(&rows, row);
            }
        }
        self.answer.rows += file.rows(group) as u64;
        self.bound()
    }

    /// Takes note of the time that a row group is about.
    fn observe(&mut self, file: &File<'_>, group: usize) {
        let table = self.question.table;
        let Some((first, last)) = file.number_range(group, table.time()) else {
            return;
        };
        let begin = match table {
            Table::Flows => file.number_range(group, flow::START),
            Table::Services => None,
        };
        let begin = begin.map_or(first, |(begin, _)| begin.min(first));
        let [from, to] = self.observed;
        self.observed = [from.min(begin), to.max(last)];
    }

    /// The time that was asked for and observed, in seconds.
    fn seconds(&self) -> f64 {
        let last = self.groups.values().map(|sums| sums.last);
        let end = last.fold(self.observed[1], i64::max);
        let from = self.question.since.max(self.observed[0]);
        let to = self.question.until.min(self.question.now).min(end);
        to.saturating_sub(from).max(0) as f64 / 1e6
    }

    fn bound(&self) -> Result<()> {
        let question = self.question;
        if self.groups.len() > question.groups {
            return Err(LakeError::TooMuch(format!(
                "there are more than {} groups: ask for a shorter time, group by fewer fields, or filter",
                question.groups
            )));
        }
        if self.texts.bytes() > NAMES {
            return Err(LakeError::TooMuch(format!(
                "there are more than {} MiB of names and addresses: ask for a shorter time, group by other \
                 fields, or filter",
                NAMES >> 20
            )));
        }
        Ok(())
    }

    fn row(&mut self, rows: &Rows<'_>, row: usize) {
        let question = self.question;
        if question.table == Table::Services {
            if self.holds(rows, row, Side::A, None, false) {
                let key = self.key(rows, row, Side::A, None);
                add_service(self.groups.entry(key).or_default(), rows, row);
            }
            return;
        }
        let mut points = self.points;
        if let Some(filter) = &question.filter {
            let (key, flags) = packet::key(row, rows.columns, &self.texts, &mut self.addresses);
            if !(filter.matches)(&key, flags) {
                return;
            }
            // It is about the tag, which other points do not have.
            let untagged = FlowKey {
                vlan: [0; 2],
                ..key
            };
            points |= key.vlan != [0; 2] && !(filter.matches)(&untagged, flags);
        }
        let server = match self.texts.get(rows.number(row, flow::SERVICE_SIDE) as u32) {
            "a" => Some(Side::A),
            "b" => Some(Side::B),
            _ => None,
        };
        let sided = question.by.iter().any(Field::has_sides);
        if !sided {
            // Viewed from the service's side, or from the side that spoke first.
            let usual = server.unwrap_or(Side::A);
            if self.holds(rows, row, usual, server, false) {
                let counted = Counted::of(rows, row, points || self.at_point);
                self.add(rows, row, usual, server, &counted);
            }
            return;
        }
        // Sides with a known owner, or of whose address files say something; without any, the conversation counts once.
        let owners = question.by.iter().any(Field::is_owner);
        let mut of_address = question.by.iter().filter_map(Field::of_address).peekable();
        let files = of_address.peek().is_some();
        let of_address: Vec<usize> = of_address.collect();
        let known = Side::BOTH.map(|side| {
            (!owners || rows.number(row, side.column(flow::A_PID)) != NULL)
                && (!files
                    || of_address
                        .iter()
                        .any(|of_a| rows.is_known(row, side.column(*of_a))))
        });
        let sides: Vec<Side> = match known {
            [false, false] => vec![server.unwrap_or(Side::A)],
            known => {
                let sides = Side::BOTH.into_iter().zip(known);
                sides
                    .filter(|(_, known)| *known)
                    .map(|(side, _)| side)
                    .collect()
            }
        };
        let mut before = None;
        for side in sides {
            if !self.holds(rows, row, side, server, true) {
                continue;
            }
            let key = self.key(rows, row, side, server);
            // If both sides have the same key, count once, from the side that spoke first.
            if before == Some(key) {
                continue;
            }
            before = Some(key);
            let counted = Counted::of(rows, row, points || self.at_point);
            self.add(rows, row, side, server, &counted);
        }
    }

    fn key(&self, rows: &Rows<'_>, row: usize, view: Side, server: Option<Side>) -> Key {
        let mut key = [0; FIELDS];
        for (place, field) in key.iter_mut().zip(&self.question.by) {
            *place = rows.value(row, field, view, server);
            // A process without a container runs on the host itself; that is not unknown.
            if field.is_container()
                && *place == i64::from(NO_TEXT)
                && pid_of(rows, row, field, view, server) != NULL
            {
                *place = NULL;
            }
        }
        key
    }

    /// Whether all conditions match. What is asked of a side must hold of either; in sums by it of the side that is
    /// viewed.
    fn holds(
        &mut self,
        rows: &Rows<'_>,
        row: usize,
        view: Side,
        server: Option<Side>,
        sided: bool,
    ) -> bool {
        let question = self.question;
        let texts = &self.texts;
        let mut conditions = question.conditions.rows.iter().zip(&mut self.held);
        let mut at_point = false;
        let all = conditions.all(|(condition, held)| {
            let mut fields = condition.fields.iter().enumerate();
            let found = fields.any(|(place, field)| {
                let of_view = sided && question.by.contains(field);
                let views: &[Side] = match field.has_sides() && !of_view {
                    true => &Side::BOTH,
                    false => &[view],
                };
                views.iter().any(|view| {
                    let value = rows.value(row, field, *view, server);
                    if field.kind != Kind::Text {
                        // Of several fields the first says whether there is a value.
                        return (place == 0 || value != NULL) && condition.finds_number(value);
                    }
                    let number = value.max(0) as usize;
                    if place > 0 && number == NO_TEXT as usize {
                        return false;
                    }
                    if held.len() <= number {
                        held.resize(texts.all().len().max(number + 1), 0);
                    }
                    if held[number] == 0 {
                        let found = condition.finds_text(texts.get(number as u32));
                        held[number] = if found { 1 } else { 2 };
                    }
                    let found = held[number] == 1;
                    at_point |= found && condition.is_search() && field.is_of_point();
                    found
                })
            });
            found != condition.negated
        });
        self.at_point = at_point;
        all
    }

    fn add(
        &mut self,
        rows: &Rows<'_>,
        row: usize,
        view: Side,
        server: Option<Side>,
        counted: &Counted,
    ) {
        let key = self.key(rows, row, view, server);
        let sums = self.groups.entry(key).or_default();
        let Counted { ab, ba, .. } = *counted;
        let (sent, received) = match view {
            Side::A => (ab, ba),
            Side::B => (ba, ab),
        };
        grow(&mut sums.sent, sent);
        grow(&mut sums.received, received);
        sums.rows += 1;
        sums.begun += counted.begun;
        sums.ended += counted.ended;
        if counted.stands {
            for column in flow::RETRANSMITTED {
                sums.retransmitted = sums.retransmitted.saturating_add(rows.count(row, column));
            }
        }
        let rtt = rows.number(row, flow::HANDSHAKE_RTT);
        // It is the same in all rows of a conversation.
        if counted.begun > 0 && rtt != NULL {
            grow(&mut sums.rtt, [1, rtt.max(0).cast_unsigned()]);
        }
        sums.first = sums.first.min(rows.number(row, flow::START));
        sums.last = sums.last.max(rows.number(row, flow::TIME));
    }

    fn finish(mut self) -> Answer {
        let order = self.question.order;
        let seconds = self.seconds();
        self.answer.seconds = seconds;
        let conditions = &self.question.conditions.sums;
        let wanted = |sums: &Sums| conditions.iter().all(|c| c.holds(sums, seconds));
        let groups = self.groups.drain().filter(|(_, sums)| wanted(sums));
        let mut groups: Vec<(Key, Sums)> = groups.collect();
        self.answer.all_groups = groups.len();
        let texts = &self.texts;
        let by = &self.question.by;
        // Equal ones in the order of what they are called, as numbers of texts depend on the files.
        let compare = |(one, a): &(Key, Sums), (other, b): &(Key, Sums)| {
            b.rank(order).cmp(&a.rank(order)).then_with(|| {
                let fields = by.iter().zip(one.iter().zip(other));
                fields
                    .map(|(field, (one, other))| match field.kind {
                        Kind::Text => texts.get(*one as u32).cmp(texts.get(*other as u32)),
                        _ => one.cmp(other),
                    })
                    .find(|order| order.is_ne())
                    .unwrap_or(std::cmp::Ordering::Equal)
            })
        };
        if self.question.top < groups.len() {
            groups.select_nth_unstable_by(self.question.top, compare);
            groups.truncate(self.question.top);
        }
        groups.sort_unstable_by(compare);
        let show = |(field, value): (&Field, &i64)| match field.kind {
            Kind::Text if *value == NULL => FieldValue::Text(HOST.into()),
            Kind::Text if *value == i64::from(NO_TEXT) => match field.is_name() {
                true => FieldValue::Text(UNKNOWN.into()),
                false => FieldValue::Absent,
            },
            Kind::Text => FieldValue::Text(texts.get(*value as u32).into()),
            kind => FieldValue::number(kind, *value),
        };
        self.answer.groups = groups
            .iter()
            .map(|(key, sums)| Group {
                values: by.iter().zip(key).map(show).collect(),
                sums: *sums,
            })
            .collect();
        self.answer
    }
}

/// What a row of `flows` adds to sums.
struct Counted {
    /// Packets and bytes.
    ab: [u64; 2],
    ba: [u64; 2],
    begun: u64,
    ended: u64,
    /// Whether the TCP counters are valid.
    stands: bool,
}

impl Counted {
    fn of(rows: &Rows<'_>, row: usize, points: bool) -> Self {
        let counts = |columns: [usize; 2]| columns.map(|column| rows.count(row, column));
        // Older files do not have this column.
        if points || rows.number(row, flow::AB_PACKETS_ONCE) == NULL {
            return Self {
                ab: counts([flow::AB_PACKETS, flow::AB_BYTES]),
                ba: counts([flow::BA_PACKETS, flow::BA_BYTES]),
                begun: rows.count(row, flow::BEGUN),
                ended: u64::from(rows.number(row, flow::END) != i64::from(NO_TEXT)),
                stands: true,
            };
        }
        let ab = counts([flow::AB_PACKETS_ONCE, flow::AB_BYTES_ONCE]);
        let ba = counts([flow::BA_PACKETS_ONCE, flow::BA_BYTES_ONCE]);
        let [begun, ended] = counts([flow::BEGUN_ONCE, flow::ENDED_ONCE]);
        Self {
            ab,
            ba,
            begun,
            ended,
            stands: [ab[0], ba[0], begun, ended] != [0; 4],
        }
    }
}

/// The process identifier of the side that a container field belongs to.
fn pid_of(rows: &Rows<'_>, row: usize, field: &Field, view: Side, server: Option<Side>) -> i64 {
    let side = match field.source {
        Source::Either(_) => Some(view),
        Source::Server(_) => server,
        Source::Client(_) => server.map(Side::other),
        _ => None,
    };
    side.map_or(NULL, |side| rows.number(row, side.column(flow::A_PID)))
}

fn grow(sums: &mut [u64; 2], more: [u64; 2]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

fn add_service(sums: &mut Sums, rows: &Rows<'_>, row: usize) {
    let count = |column| rows.count(row, column);
    // From the service's side.
    grow(
        &mut sums.sent,
        [service::SERVER_PACKETS, service::SERVER_BYTES].map(count),
    );
    grow(
        &mut sums.received,
        [service::CLIENT_PACKETS, service::CLIENT_BYTES].map(count),
    );
    sums.rows += 1;
    sums.begun += count(service::BEGUN);
    sums.ended += count(service::ENDED);
    for column in [service::CLIENT_RETRANSMITTED, service::SERVER_RETRANSMITTED] {
        sums.retransmitted = sums.retransmitted.saturating_add(count(column));
    }
    let rtt = [
        count(service::RTT_COUNT),
        count(service::RTT_SUM).saturating_mul(1_000),
    ];
    grow(&mut sums.rtt, rtt);
    let begin = rows.number(row, service::WINDOW);
    sums.first = sums.first.min(begin);
    let length = rows.number(row, service::SECONDS).max(0) / 1_000;
    sums.last = sums.last.max(begin.saturating_add(length));
}

/// Columns that an answer is made of.
fn needed(question: &Question) -> Vec<usize> {
    let table = question.table;
    let mut columns = match table {
        Table::Flows => vec![
            flow::TIME,
            flow::START,
            flow::SERVICE_SIDE,
            flow::AB_PACKETS,
            flow::AB_BYTES,
            flow::BA_PACKETS,
            flow::BA_BYTES,
            flow::AB_PACKETS_ONCE,
            flow::AB_BYTES_ONCE,
            flow::BA_PACKETS_ONCE,
            flow::BA_BYTES_ONCE,
            flow::BEGUN,
            flow::BEGUN_ONCE,
            flow::ENDED_ONCE,
            flow::END,
            flow::HANDSHAKE_RTT,
            flow::RETRANSMITTED[0],
            flow::RETRANSMITTED[1],
        ],
        Table::Services => vec![
            service::WINDOW,
            service::SECONDS,
            service::CLIENT_PACKETS,
            service::CLIENT_BYTES,
            service::SERVER_PACKETS,
            service::SERVER_BYTES,
            service::BEGUN,
            service::ENDED,
            service::CLIENT_RETRANSMITTED,
            service::SERVER_RETRANSMITTED,
            service::RTT_COUNT,
            service::RTT_SUM,
        ],
    };
    let conditions = question.conditions.rows.iter().flat_map(|c| &c.fields);
    for field in question.by.iter().chain(conditions) {
        columns.extend(field.value_columns(table));
    }
    if question
        .by
        .iter()
        .any(|field| field.is_owner() || field.is_container())
    {
        columns.extend(Side::BOTH.map(|side| side.column(flow::A_PID)));
    }
    if question.filter.is_some() && table == Table::Flows {
        columns.extend(packet::COLUMNS);
    }
    columns.sort_unstable();
    columns.dedup();
    columns
}

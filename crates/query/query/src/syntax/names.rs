//! Names of the dialect, in any case of letters.

macro_rules! names {
    ($(#[$doc:meta])* $type:ident: $($name:ident $text:literal $(| $alias:literal)*, $meaning:literal;)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type { $(#[doc = $meaning] $name,)+ }

        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its usual spelling.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }

            /// By its name in any case of letters.
            pub fn find(name: &str) -> Option<Self> {
                $(if name.eq_ignore_ascii_case($text) $(|| name.eq_ignore_ascii_case($alias))* {
                    return Some(Self::$name);
                })+
                None
            }
        }
    };
}

names! {
    /// A step.
    StepName:
    G "G", "Goes back to the graph, to start again within one query.";
    V "V", "All nodes, or the one with an ID.";
    E "E", "All edges, or the one with an ID.";
    At "At" | "Context", "Goes to a moment of the past, or to a span that ends then.";
    Has "Has", "Keeps what has a key, or values under keys.";
    HasEither "HasEither", "Keeps what has at least one of several values.";
    HasKey "HasKey", "Keeps what has a key.";
    HasNot "HasNot", "Keeps what lacks a key.";
    Out "Out", "Goes to the children; from flows to the node of the B side.";
    In "In", "Goes to the parents; from flows to the node of the A side.";
    Both "Both", "Goes to parents and children; from flows to the nodes of both sides.";
    OutE "OutE", "Goes to the edges to children.";
    InE "InE", "Goes to the edges from parents.";
    BothE "BothE", "Goes to all edges of the nodes.";
    OutV "OutV", "Goes to the children of the edges.";
    InV "InV", "Goes to the parents of the edges.";
    BothV "BothV", "Goes to parents and children of the edges.";
    Dedup "Dedup", "Drops what came before, by identity or by keys.";
    Count "Count", "How many there are.";
    Limit "Limit", "Keeps the first so many.";
    Range "Range", "Keeps those from one position up to before another.";
    Sort "Sort", "Sorts by a key.";
    Values "Values", "The values under a key.";
    ValueMap "ValueMap", "The values under several keys, of each in one object.";
    Keys "Keys", "All keys that there are.";
    Sum "Sum", "Adds up the values under a key.";
    ShortestPathTo "ShortestPathTo", "The shortest path from each node to one with given metadata.";
    SubGraph "SubGraph", "A graph of these elements alone.";
    As "As", "Remembers the nodes under a name.";
    Select "Select", "Goes to the nodes remembered under names.";
    Flows "Flows", "All flows, or those captured on the nodes.";
    Hops "Hops", "The nodes on which the flows were captured, in the order of the flows.";
    Path "Path", "Where each conversation was seen, in order, and what was lost in between.";
    Nodes "Nodes", "The nodes of the flows: captured on, side A, side B.";
    CaptureNode "CaptureNode" | "Node", "The nodes on which the flows were captured.";
    Metrics "Metrics", "Counters over time of nodes or flows.";
    Aggregates "Aggregates", "Adds up metrics in slices of time.";
    RawPackets "RawPackets", "The packets that were kept of the flows.";
    Bpf "BPF", "Keeps the packets that a pcap expression matches.";
    Sockets "Sockets", "The sockets on the nodes, or at the ends of the flows.";
    Acls "ACLs", "The ACLs of OVN that let the flows pass, or not.";
    Group "Group", "Groups flows by a key.";
    MoreThan "MoreThan", "Keeps groups with more than so many flows.";
    NextHop "NextHop", "Where the nodes route packets to an address.";
    Descendants "Descendants", "The nodes and their descendants.";
    Ascendants "Ascendants", "The nodes and their ascendants.";
    Neighbors "Neighbors", "The nodes and their neighbours in both directions.";
}

names! {
    /// A predicate.
    PredicateName:
    Ne "Ne", "Has the key, with another value.";
    Nee "Nee", "Lacks the key, or has another value.";
    Lt "Lt", "Is less.";
    Lte "Lte", "Is less or equal.";
    Gt "Gt", "Is greater.";
    Gte "Gte", "Is greater or equal.";
    Inside "Inside", "Is between two numbers.";
    Outside "Outside", "Is less than the first number or greater than the second.";
    Between "Between", "Is between two numbers or equal to the first.";
    Within "Within", "Is one of these.";
    Without "Without", "Is none of these; also without the key.";
    Regex "Regex", "Matches as a whole.";
    Ipv4Range "Ipv4Range" | "IpRange", "Is an address in this network.";
    Metadata "Metadata", "Keys and values that a node or edge has.";
}

names! {
    /// A word used literally.
    Word:
    Asc "ASC", "From the least on.";
    Desc "DESC", "From the greatest on.";
    Now "NOW", "This moment.";
    Forever "FOREVER", "As far back as the history goes.";
}

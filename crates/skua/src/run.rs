//! `skua run`: everything on this host in one process.

use std::{io::Write as _, sync::Arc};

use skua_analyzer::{Resources, capture::CaptureManager};
use skua_topology::SharedGraph;

use crate::{
    args::RunArguments,
    captures::{
        api::Captures,
        run::{CaptureSets, LocalRunner},
    },
    config::Config,
    graph::Analyzer,
    http, output,
    session::Session,
    sockets::settings::lower_priority,
    summary,
};

/// Records in the history at most; `history.memory` is the tighter limit.
const RECORDS: usize = 50_000_000;

pub fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let mut config = Config::load(arguments.capture.config.as_deref())?;
    if let Some(listen) = arguments.listen {
        config.api.listen = listen;
    }
    let config = config.with_arguments(&arguments.capture)?;
    lower_priority(config.agent.nice, &config.agent.ionice)?;
    // First the address: an occupied one is a clearer error than a half-started probe.
    let server = http::Server::bind(config.api.listen)?;
    let mut session = Session::start(&config, RECORDS)?;
    session.mark_own(server.socket())?;
    let graph = SharedGraph::new(Default::default());
    let sets = CaptureSets::default();
    let runner = LocalRunner {
        config: config.clone(),
        sets: sets.clone(),
    };
    let kept = Resources::open(None, config.captures.max as usize)?;
    let captures = Arc::new(CaptureManager::start(
        graph.clone(),
        kept,
        Arc::new(runner),
    )?);
    let analyzer = Analyzer::new(graph, session.shared(), sets.clone());
    server.serve(
        session.shared(),
        session.addresses(),
        analyzer,
        Captures {
            captures: captures.clone(),
            sets,
        },
    )?;
    let mut out = std::io::stdout();
    let capture = session.describe();
    writeln!(
        out,
        "skua watches {} by {} ({}); see `skua flows`, http://{}/ and `skua doctor`; Ctrl-C ends",
        output::counted(session.interfaces(), "interface"),
        capture.hook,
        capture.rung,
        server.address()
    )?;
    out.flush()?;
    session.run(None, |_| Ok(()))?;
    captures.end();
    let shared = session.finish()?;
    summary::print(arguments.summary, &shared.lock());
    Ok(())
}

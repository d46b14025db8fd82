//! The forms in which a report is printed: text, Markdown, comma-separated values. (JSON is the report itself.)

use super::report::{Report, Row, Unit};
use super::work::Work;
use crate::cli::screen::{Table, binary, grouped, quantity, rate};

/// Columns for people.
fn columns(report: &Report) -> Vec<&'static str> {
    let mut columns = vec!["work", "median", "spread", "peak memory"];
    if report.machine.limits.is_some() {
        columns.extend(["of bandwidth", "of matmul"]);
    }
    if report.rows.iter().any(|row| row.compared.is_some()) {
        columns.extend(["other", "ratio"]);
    }
    columns
}

fn cells(row: &Row, columns: &[&str]) -> Vec<String> {
    let unit = |value: f64| match row.unit {
        Unit::TokensPerSecond => format!("{} tokens/s", rate(value)),
        Unit::Seconds => format!("{} s", seconds(value)),
    };
    let number = |value: f64| match row.unit {
        Unit::TokensPerSecond => rate(value),
        Unit::Seconds => seconds(value),
    };
    let cell = |column: &&str| match *column {
        "work" => row.work.to_string(),
        "median" => unit(row.median),
        "spread" if row.samples.len() < 2 => String::new(),
        "spread" => format!("{}..{}", number(row.min), number(row.max)),
        "peak memory" => row.peak_memory_bytes.map_or_else(String::new, binary),
        "of bandwidth" => row.of_bandwidth.map_or_else(String::new, percent),
        "of matmul" => row.of_matmul.map_or_else(String::new, percent),
        "other" => row.compared.map_or_else(String::new, |compared| unit(compared.median)),
        _ => row.compared.map_or_else(String::new, |compared| format!("{:.2}", compared.ratio)),
    };
    columns.iter().map(cell).collect()
}

fn percent(part: f64) -> String {
    let value = 100.0 * part;
    if value >= 9.95 { format!("{value:.0} %") } else { format!("{value:.1} %") }
}

fn seconds(value: f64) -> String {
    if value >= 9.95 { format!("{value:.1}") } else { format!("{value:.3}") }
}

/// What was measured, where and how.
fn facts(report: &Report) -> [(&'static str, String); 3] {
    let (model, machine, settings) = (&report.model, &report.machine, &report.settings);
    let limits = machine.limits.as_ref().map_or_else(String::new, |limits| {
        format!(
            "; reads {:.1} GB/s, multiplies {} GFLOP/s ({})",
            limits.memory_bytes_per_second / 1e9,
            rate(limits.matmul_operations_per_second / 1e9),
            limits.matmul_weights
        )
    });
    let threads = if machine.threads == 1 { "thread" } else { "threads" };
    [
        (
            "model",
            format!(
                "{} ({}), {} parameters, {} of weights in {}",
                model.name,
                model.architecture,
                quantity(model.parameters),
                binary(model.weight_bytes),
                model.types.join(", ")
            ),
        ),
        (
            "machine",
            format!(
                "{}, {}, {} {threads}{limits}",
                machine.processor.as_deref().unwrap_or("unknown processor"),
                machine.instruction_set,
                machine.threads
            ),
        ),
        (
            "run",
            format!(
                "version {}, {} repetitions, seed {}, {} cache, {} arithmetic, {} attention, steps of {}",
                report.version,
                grouped(settings.repetitions as u64),
                settings.seed,
                settings.kv_type,
                settings.arithmetic,
                settings.attention,
                settings.chunk
            ),
        ),
    ]
}

/// Columns of text.
pub fn text(report: &Report) -> String {
    let facts: String = facts(report).iter().map(|(name, value)| format!("{name:7}  {value}\n")).collect();
    let columns = columns(report);
    let mut table = Table::new(&columns);
    for row in &report.rows {
        table.row(cells(row, &columns));
    }
    let notes: String = report.notes.iter().map(|note| format!("note: {note}\n")).collect();
    format!("{facts}\n{table}{notes}")
}

/// A table of Markdown, behind a list of the facts.
pub fn markdown(report: &Report) -> String {
    let plain = |text: &str| text.replace('|', "\\|");
    let facts: String = facts(report).iter().map(|(name, value)| format!("- {name}: {}\n", plain(value))).collect();
    let columns = columns(report);
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head = format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    let rows: String = report.rows.iter().map(|row| line(&cells(row, &columns))).collect();
    let notes: String = report.notes.iter().map(|note| format!("- {}\n", plain(note))).collect();
    let gap = if notes.is_empty() { "" } else { "\n" };
    format!("{facts}\n{head}{rows}{gap}{notes}")
}

/// One line a row, every column always there, numbers as they are.
pub fn csv(report: &Report) -> String {
    const HEAD: &str = "work,tokens,depth,batch,source,beams,unit,median,min,max,repetitions,peak_memory_bytes,\
                        of_bandwidth,of_matmul,other_median,ratio\n";
    let rows: String = report.rows.iter().map(csv_row).collect();
    format!("{HEAD}{rows}")
}

fn csv_row(row: &Row) -> String {
    // Tokens, depth, batch, source and beams.
    let (name, numbers) = match row.work {
        Work::Load => ("load", [None; 5]),
        Work::FirstToken { tokens } => ("first_token", [Some(tokens), None, None, None, None]),
        Work::Prefill { tokens, depth } => ("prefill", [Some(tokens), Some(depth), None, None, None]),
        Work::Decode { tokens, depth, batch } => ("decode", [Some(tokens), Some(depth), Some(batch), None, None]),
        Work::Encode { tokens, batch } => ("encode", [Some(tokens), None, Some(batch), None, None]),
        Work::Write { tokens, source, beams, batch } => {
            ("write", [Some(tokens), None, Some(batch), Some(source), Some(beams)])
        }
    };
    let unit = match row.unit {
        Unit::TokensPerSecond => "tokens/s",
        Unit::Seconds => "s",
    };
    let mut cells = vec![name.to_owned()];
    cells.extend(numbers.map(|number| number.map_or_else(String::new, |number| number.to_string())));
    cells.push(unit.into());
    cells.extend([row.median, row.min, row.max].map(|value| value.to_string()));
    cells.push(row.samples.len().to_string());
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    cells.push(row.peak_memory_bytes.map_or_else(String::new, |bytes| bytes.to_string()));
    cells.extend([row.of_bandwidth, row.of_matmul].map(optional));
    cells.push(optional(row.compared.map(|compared| compared.median)));
    cells.push(optional(row.compared.map(|compared| compared.ratio)));
    format!("{}\n", cells.join(","))
}

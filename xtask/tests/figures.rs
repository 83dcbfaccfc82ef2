//! SCL-1 and others: docs/benchmarks.md is what its template and the records of docs/figures give.

use figures::{Figure, Unit};
use xtask::bench::{BENCHMARKS, FLOOR};
use xtask::figures::{BenchMachine, BenchRecord, FigureTable, check, read_all, render};

#[test]
fn the_page_is_current() {
    if let Err(wrong) = check(&xtask::root()) {
        panic!("\n{wrong}\n");
    }
}

#[test]
fn no_record_is_of_small_sizes_or_has_a_figure_twice() {
    for record in read_all(&xtask::root()).unwrap() {
        for table in &record.tables {
            let mut names: Vec<&str> = table.rows.iter().map(|row| &*row.name).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{} of {}: {}", record.benchmark, record.measured, table.title);
        }
    }
}

fn record(measured: &str, commit: &str, rows: &[Figure]) -> BenchRecord {
    BenchRecord {
        benchmark: "checkin".to_owned(),
        measured: measured.to_owned(),
        commit: commit.to_owned(),
        machine: BenchMachine {
            cpu: None,
            cores: 2,
            memory_gib: 24,
            kernel: "6.18".to_owned(),
            distribution: "Debian 12".to_owned(),
        },
        notes: vec![format!("Noted with {commit}.")],
        tables: vec![FigureTable {
            table: "check-in".to_owned(),
            title: "a check-in of 16".to_owned(),
            rows: rows.to_vec(),
        }],
    }
}

fn time(value: f64) -> Figure {
    Figure::at_most("CPU", value, 80.0, Unit::Micros)
}

fn peer(value: f64) -> Figure {
    Figure::plain("beside a peer", value, Unit::Millis)
}

#[test]
fn each_row_has_the_commit_before_beside_it_and_its_limit() {
    let records = [
        record("2026-01-01", "aaaaaaaa", &[time(70.0), peer(5.0)]),
        record("2026-01-02", "bbbbbbbb", &[time(75.0), peer(6.0)]),
        // Measured twice, without the peer.
        record("2026-01-03", "cccccccc", &[time(90.5)]),
        record("2026-01-04", "cccccccc", &[time(81.25)]),
    ];
    let page = render("# Figures\n\n{{figures checkin}}\nText.\n{{runs}}\n", &["checkin"], &records).unwrap();
    assert_eq!(
        page,
        "# Figures\n\n\
         | a check-in of 16 | before | now | limit |\n\
         | --- | ---: | ---: | --- |\n\
         | CPU | 75.00 us | 81.25 us (2 runs: 81.25 us to 90.50 us) | at most 80 us: **missed** |\n\
         | beside a peer | 5.00 ms | 6.00 ms, of 2026-01-02 |  |\n\
         \n\
         - 2026-01-03: Noted with cccccccc.\n\
         - 2026-01-04: Noted with cccccccc.\n\
         Text.\n\
         | benchmark | now | before | machine |\n\
         | --- | --- | --- | --- |\n\
         | checkin | 2026-01-04, `cccccccc` | 2026-01-02, `bbbbbbbb` | 2 cores, 24 GiB, Debian 12, kernel 6.18 |\n"
    );
}

#[test]
fn figures_of_other_sizes_are_not_compared() {
    let mut small = record("2026-01-01", "aaaaaaaa", &[time(70.0), peer(5.0)]);
    small.tables[0].title = "a check-in of 8".to_owned();
    let records = [small, record("2026-01-02", "bbbbbbbb", &[time(75.0)])];
    let page = render("{{figures checkin}}\n", &["checkin"], &records).unwrap();
    assert!(page.contains("| CPU |  | 75.00 us | at most 80 us |\n"), "{page}");
    assert!(!page.contains("peer") && !page.contains("of 8"), "{page}");
}

#[test]
fn no_benchmark_is_left_out_and_none_is_made_up() {
    let records = [record("2026-01-01", "aaaaaaaa", &[time(70.0)])];
    let refused = |template: &str, known: &[&str]| render(template, known, &records).unwrap_err();
    assert_eq!(
        refused("# Nothing\n", &["checkin"]),
        "docs/benchmarks.template.md has no line `{{figures checkin}}`"
    );
    assert_eq!(
        refused("{{figures checkin}}\n{{figures speed}}\n", &["checkin"]),
        "docs/benchmarks.template.md:2: there is no benchmark `speed`"
    );
    assert_eq!(
        refused("{{figures sync}}\n", &["sync"]),
        "docs/figures has a record of `checkin`, which is no benchmark"
    );
    assert!(refused("{{chart}}\n", &["checkin"]).contains("`chart` is neither"));
    let page = render("{{figures checkin}}\n{{figures sync}}\n", &["checkin", "sync"], &records).unwrap();
    assert!(page.ends_with("\nIt was not measured yet.\n"), "{page}");
}

/// What a benchmark measures is kept.
#[test]
fn every_benchmark_of_muster_is_kept() {
    let reference = std::fs::read_to_string(xtask::root().join("docs/reference/cli.md")).unwrap();
    let verbs: Vec<&str> =
        reference.lines().filter_map(|line| line.strip_prefix("#### muster bench ")).collect();
    assert!(verbs.contains(&"checkin"), "{verbs:?}");
    for verb in verbs {
        let is_kept = BENCHMARKS.iter().any(|benchmark| benchmark.name == verb) || verb == FLOOR.name;
        assert!(
            is_kept,
            "`muster bench {verb}`: add it to BENCHMARKS in xtask/src/bench.rs, and a section to the template"
        );
    }
}

#[test]
fn figures_of_small_sizes_are_not_kept() {
    let mut kept = record("2026-01-01", "aaaaaaaa", &[]);
    kept.tables.clear();
    let lines =
        |quick| figures::lines("checkin", "check-in", "a check-in", &[time(70.0), peer(1.0)], quick).unwrap();
    kept.take(&lines(false)).unwrap();
    assert_eq!(kept.tables.len(), 1);
    assert_eq!(kept.tables[0].rows, [time(70.0), peer(1.0)]);
    assert!(kept.take(&lines(true)).unwrap_err().contains("small sizes"));
    assert!(kept.take("floor, kept connections\n").unwrap_err().contains("a line is no figure"));
}

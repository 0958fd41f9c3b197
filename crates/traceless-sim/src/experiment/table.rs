//! Every count of every run, one line for each run: as CSV, and as Parquet.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;

/// A table. Each column has one cell for each line.
pub struct Table {
    columns: Vec<Column>,
    lines: usize,
}

struct Column {
    name: String,
    /// `None` where the run does not have this count.
    cells: Vec<Option<Value>>,
}

/// The narrowest type that fits all cells of a column.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Integer,
    Number,
    Text,
}

impl Table {
    /// A line for each run: the names that identify it, and its counts.
    pub fn new<'a>(runs: impl Iterator<Item = (Vec<(&'a str, Value)>, &'a Value)>) -> Self {
        let line = |(names, counts): (Vec<(&str, Value)>, &Value)| {
            let names = names.into_iter().map(|(name, cell)| (name.to_owned(), cell));
            let mut line: Vec<_> = names.collect();
            flatten("", counts, &mut line);
            line
        };
        Self::of(runs.map(line).collect())
    }

    /// Makes a table of lines of named cells. Columns are in the order in which their names first
    /// occur.
    fn of(lines: Vec<Vec<(String, Value)>>) -> Self {
        let mut table = Self { columns: vec![], lines: lines.len() };
        for (nth, line) in lines.into_iter().enumerate() {
            for (name, cell) in line {
                table.column(name).cells[nth] = Some(cell);
            }
        }
        table
    }

    fn column(&mut self, name: String) -> &mut Column {
        let nth = self.columns.iter().position(|column| column.name == name);
        let nth = nth.unwrap_or_else(|| {
            self.columns.push(Column { name, cells: vec![None; self.lines] });
            self.columns.len() - 1
        });
        &mut self.columns[nth]
    }

    /// As CSV.
    pub fn to_csv(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let mut csv = names.join(",") + "\n";
        for nth in 0..self.lines {
            let cell = |column: &Column| column.cells[nth].as_ref().map_or(String::new(), quoted);
            let cells: Vec<String> = self.columns.iter().map(cell).collect();
            writeln!(csv, "{}", cells.join(",")).expect("a string takes every line");
        }
        csv
    }

    /// As Parquet, with a type for each column: 64-bit integers, doubles or text.
    pub fn to_parquet(&self) -> Result<Vec<u8>> {
        let fields = self.columns.iter().map(|column| Ok(Arc::new(column.schema()?)));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let schema = Arc::new(Type::group_type_builder("runs").with_fields(fields).build()?);
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(vec![], schema, properties)?;
        let mut group = writer.next_row_group()?;
        for column in &self.columns {
            let mut to = group.next_column()?.expect("there is a field for each column");
            column.write(&mut to)?;
            to.close()?;
        }
        group.close()?;
        writer.into_inner()
    }
}

impl Column {
    fn kind(&self) -> Kind {
        let all = |is: fn(&Value) -> bool| self.cells.iter().flatten().all(is);
        if all(Value::is_i64) {
            Kind::Integer
        } else if all(Value::is_number) {
            Kind::Number
        } else {
            Kind::Text
        }
    }

    fn schema(&self) -> Result<Type> {
        let (physical, logical) = match self.kind() {
            Kind::Integer => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(&self.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
    }

    fn write(&self, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
        // Parquet takes a level for each cell, 1 if there is a value, and separately the values
        // alone.
        let levels: Vec<i16> = self.cells.iter().map(|cell| cell.is_some().into()).collect();
        let cells = || self.cells.iter().flatten();
        let levels = Some(&levels[..]);
        match self.kind() {
            Kind::Integer => {
                let values: Vec<i64> = cells().filter_map(Value::as_i64).collect();
                to.typed::<Int64Type>().write_batch(&values, levels, None)?;
            }
            Kind::Number => {
                let values: Vec<f64> = cells().filter_map(Value::as_f64).collect();
                to.typed::<DoubleType>().write_batch(&values, levels, None)?;
            }
            Kind::Text => {
                let values: Vec<ByteArray> = cells().map(|cell| (&*text(cell)).into()).collect();
                to.typed::<ByteArrayType>().write_batch(&values, levels, None)?;
            }
        }
        Ok(())
    }
}

/// Each leaf below `value`, named by its path.
fn flatten(name: &str, value: &Value, line: &mut Vec<(String, Value)>) {
    let join =
        |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match value {
        Value::Object(parts) => {
            parts.iter().for_each(|(part, value)| flatten(&join(part), value, line));
        }
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .for_each(|(nth, value)| flatten(&join(&nth.to_string()), value, line)),
        Value::Null => {}
        other => line.push((name.to_owned(), other.clone())),
    }
}

fn text(cell: &Value) -> String {
    cell.as_str().map_or_else(|| cell.to_string(), str::to_owned)
}

/// A cell in CSV syntax.
fn quoted(cell: &Value) -> String {
    let text = text(cell);
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;
    use std::io::Write as _;

    #[test]
    fn columns_are_named_by_the_paths_of_counts() {
        let counts = json!({"b": {"x": 1, "y": [2.5, null]}, "a": 3, "none": null});
        let mut line = vec![];
        flatten("", &counts, &mut line);
        let expected = [("a", json!(3)), ("b.x", json!(1)), ("b.y.0", json!(2.5))];
        assert_eq!(line, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    /// Two lines. Each lacks a cell that the other one has.
    fn table() -> Table {
        let line = |cells: &[(&str, Value)]| {
            cells.iter().map(|(name, cell)| ((*name).to_owned(), cell.clone())).collect()
        };
        Table::of(vec![
            line(&[("name", json!("a,\"b\"")), ("paths.data", json!(i64::MAX)), ("x", json!(1))]),
            line(&[("name", json!("c")), ("x", json!(2.5)), ("last", json!(-7))]),
        ])
    }

    #[test]
    fn csv_quotes_texts_and_leaves_missing_counts_empty() {
        let expected =
            "name,paths.data,x,last\n\"a,\"\"b\"\"\",9223372036854775807,1,\nc,,2.5,-7\n";
        assert_eq!(table().to_csv(), expected);
    }

    #[test]
    fn parquet_preserves_every_cell_and_its_type() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&table().to_parquet().unwrap()).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let text = |text: &str| Field::Str(text.to_owned());
        let expected = [
            [text("a,\"b\""), Field::Long(i64::MAX), Field::Double(1.0), Field::Null],
            [text("c"), Field::Null, Field::Double(2.5), Field::Long(-7)],
        ];
        let lines: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(lines.len(), expected.len());
        for (line, expected) in lines.iter().zip(expected) {
            let names = ["name", "paths.data", "x", "last"];
            let cells = line.get_column_iter().map(|(name, cell)| (name.as_str(), cell));
            assert!(cells.eq(names.into_iter().zip(&expected)), "{line}");
        }
    }
}

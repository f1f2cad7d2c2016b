/** Columns of the device table as an address names them. */

/** Columns that an address may name, and characters of each. */
const ADDRESS_COLUMNS_MAX = 100;
const COLUMN_CHARACTERS_MAX = 256;

/** Writes columns as an address names them, with commas between them. */
export function columnsInAddress(columns: readonly string[]): string {
  return columns.map((column) => column.replaceAll('%', '%25').replaceAll(',', '%2C')).join(',');
}

/** Reads the columns that an address names; none where it names none. */
export function columnsFromAddress(text: string | null): string[] {
  const columns = (text ?? '').split(',').map((column) => column.replaceAll('%2C', ',').replaceAll('%25', '%'));
  return [...new Set(columns)]
    .filter((column) => column !== '' && column.length <= COLUMN_CHARACTERS_MAX)
    .slice(0, ADDRESS_COLUMNS_MAX);
}

/** Writes parameters as the server reads them: lists are repeated, objects become `filter[name][operator]=value`. */
export function writeQuery(parameters: unknown): string {
  const query = new URLSearchParams();
  append(query, '', parameters);
  return query.toString();
}

function append(query: URLSearchParams, name: string, value: unknown): void {
  if (value === undefined || value === null) return;
  if (Array.isArray(value)) {
    for (const item of value) append(query, name, item);
  } else if (typeof value === 'object') {
    for (const [key, member] of Object.entries(value)) append(query, name ? `${name}[${key}]` : key, member);
  } else {
    query.append(name, String(value));
  }
}

/** Programs that send a device's first event, ready to paste. The token and the address are filled in. */

export type Language = 'curl' | 'Python' | 'Arduino' | 'Node.js';
export const LANGUAGES: readonly Language[] = ['curl', 'Python', 'Arduino', 'Node.js'];

export interface Target {
  /** Where the server is: `https://example.org`. */
  origin: string;
  token: string;
  elementName: string;
  /** What the first event says. */
  payload: Record<string, unknown>;
}

export function snippet(language: Language, { origin, token, elementName, payload }: Target): string {
  const body = spaced(payload);
  const url = `${origin}/v2/events/device?elementName=${encodeURIComponent(elementName)}`;
  switch (language) {
    case 'curl':
      return [
        `curl '${url.replaceAll("'", '%27')}' \\`,
        `  -H 'cloud: ${token}' \\`,
        "  -H 'content-type: application/json' \\",
        `  -d '${body.replaceAll("'", "'\\''")}'`,
      ].join('\n');
    case 'Python':
      return [
        'import json, urllib.request',
        '',
        'request = urllib.request.Request(',
        `    ${text(url)},`,
        `    data=json.dumps(${spaced(payload, true)}).encode(),`,
        `    headers={"cloud": ${text(token)}, "content-type": "application/json"},`,
        ')',
        'print(urllib.request.urlopen(request).read().decode())',
      ].join('\n');
    case 'Arduino':
      return arduino(url, token, body);
    case 'Node.js':
      return [
        `const response = await fetch(${text(url)}, {`,
        "  method: 'POST',",
        `  headers: { cloud: ${text(token)}, 'content-type': 'application/json' },`,
        `  body: JSON.stringify(${body}),`,
        '});',
        'console.log(response.status, await response.text());',
      ].join('\n');
  }
}

function arduino(url: string, token: string, body: string): string {
  return [
    '#include <WiFi.h>',
    '#include <HTTPClient.h>',
    '',
    'void setup() {',
    '  Serial.begin(115200);',
    '  WiFi.begin("your network", "its password");',
    '  while (WiFi.status() != WL_CONNECTED) delay(250);',
    '}',
    '',
    'void loop() {',
    '  HTTPClient http;',
    `  http.begin(${text(url)});`,
    `  http.addHeader("cloud", ${text(token)});`,
    '  http.addHeader("content-type", "application/json");',
    `  int status = http.POST(${text(body)});`,
    '  Serial.println(status);',
    '  http.end();',
    '  delay(60000);',
    '}',
  ].join('\n');
}

/** JSON with a space after each colon and comma, as people write it; or the same in Python. */
function spaced(value: unknown, isPython = false): string {
  if (Array.isArray(value)) return `[${value.map((item) => spaced(item, isPython)).join(', ')}]`;
  if (typeof value === 'object' && value !== null) {
    return `{${Object.entries(value)
      .map(([name, member]) => `${text(name)}: ${spaced(member, isPython)}`)
      .join(', ')}}`;
  }
  if (isPython && typeof value === 'boolean') return value ? 'True' : 'False';
  return isPython && value === null ? 'None' : JSON.stringify(value);
}

/** A literal text that all three languages read alike. */
function text(value: string): string {
  return JSON.stringify(value);
}

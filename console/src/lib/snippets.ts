/** Programs that send a device's first event, ready to paste. The token and the address are filled in. */

export type Language = 'curl' | 'Python' | 'Arduino' | 'Node.js';
export const LANGUAGES: readonly Language[] = ['curl', 'Python', 'Arduino', 'Node.js'];

export interface Target {
  /** Where the server is: `https://example.org`. */
  origin: string;
  token: string;
  elementName: string;
}

/** What the first event says. */
const PAYLOAD = '{"temperature": 21.5}';

export function snippet(language: Language, { origin, token, elementName }: Target): string {
  const url = `${origin}/v2/events/device?elementName=${encodeURIComponent(elementName)}`;
  switch (language) {
    case 'curl':
      return [
        `curl '${url.replaceAll("'", '%27')}' \\`,
        `  -H 'cloud: ${token}' \\`,
        "  -H 'content-type: application/json' \\",
        `  -d '${PAYLOAD}'`,
      ].join('\n');
    case 'Python':
      return [
        'import json, urllib.request',
        '',
        'request = urllib.request.Request(',
        `    ${text(url)},`,
        `    data=json.dumps(${PAYLOAD}).encode(),`,
        `    headers={"cloud": ${text(token)}, "content-type": "application/json"},`,
        ')',
        'print(urllib.request.urlopen(request).read().decode())',
      ].join('\n');
    case 'Arduino':
      return arduino(url, token);
    case 'Node.js':
      return [
        `const response = await fetch(${text(url)}, {`,
        "  method: 'POST',",
        `  headers: { cloud: ${text(token)}, 'content-type': 'application/json' },`,
        `  body: JSON.stringify(${PAYLOAD}),`,
        '});',
        'console.log(response.status, await response.text());',
      ].join('\n');
  }
}

function arduino(url: string, token: string): string {
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
    `  int status = http.POST(${text(PAYLOAD)});`,
    '  Serial.println(status);',
    '  http.end();',
    '  delay(60000);',
    '}',
  ].join('\n');
}

/** A literal text that all three languages read alike. */
function text(value: string): string {
  return JSON.stringify(value);
}

/** What other platforms are told so that they hand their messages on: where to post, with which headers, and what comes then. */

export const KINDS = ['thingsStack', 'chirpStack', 'sigfox', 'custom'] as const;
export type Kind = (typeof KINDS)[number];

/** Names of products, the same in every language; the keys of integrations begin with them. */
export const BRANDS: Record<Kind, string> = {
  thingsStack: 'The Things Stack',
  chirpStack: 'ChirpStack',
  sigfox: 'Sigfox',
  custom: 'Webhook',
};

/** The `integration` of the device events that a kind sets off in a design. */
export const TYPES: Record<Kind, 'lora' | 'sigfox' | 'custom'> = {
  thingsStack: 'lora',
  chirpStack: 'lora',
  sigfox: 'sigfox',
  custom: 'custom',
};

export interface Wanted {
  kind: Kind;
  /** Where the server is: `https://example.org`. */
  origin: string;
  key: string;
  projectId: string;
  /** Where devices belong to, where that is not the organization of the key's user. */
  organizationId?: string | undefined;
  /** The label that holds what the platform calls a device, and where it says so; the known platforms have their own. */
  tag?: string;
  reference?: string;
}

export interface Setup {
  /** What is pasted as the address. */
  url: string;
  /** What is pasted as headers, one by one. */
  headers: readonly (readonly [name: string, value: string])[];
  /** What is pasted as the body's template, where the platform wants one. */
  template?: string;
}

const PATH = '/v2/events/integrations';
const REFERENCES: Record<Exclude<Kind, 'custom'>, readonly [tag: string, reference: string]> = {
  thingsStack: ['devEui', '$.end_device_ids.dev_eui'],
  chirpStack: ['devEui', '$.deviceInfo.devEui'],
  sigfox: ['sigfoxId', 'device'],
};
const SIGFOX_TEMPLATE = '{"device": "{device}", "time": {time}, "data": "{data}", "seqNumber": {seqNumber}}';
export const CUSTOM_TAG = 'deviceId';
export const CUSTOM_REFERENCE = '$.device.id';

/** The label, and where its value stands in a message. */
export function tagOf({ kind, tag, reference }: Pick<Wanted, 'kind' | 'tag' | 'reference'>): readonly [string, string] {
  return kind === 'custom' ? [tag || CUSTOM_TAG, reference || CUSTOM_REFERENCE] : REFERENCES[kind];
}

export function setupOf(wanted: Wanted): Setup {
  const { kind, origin, key, projectId, organizationId } = wanted;
  const [deviceTag, deviceTagValueRef] = tagOf(wanted);
  const parameters: [string, string][] = [
    ['integration', TYPES[kind]],
    ['deviceTag', deviceTag],
    ['deviceTagValueRef', deviceTagValueRef],
    // Networks write what they call a device in upper or in lower case; what another platform means by its names is for it to say.
    ...(kind === 'custom' ? [] : ([['deviceTagCase', 'insensitive']] as [string, string][])),
    ['projectUuid', projectId],
    ...(organizationId ? ([['organizationId', organizationId]] as [string, string][]) : []),
  ];
  const address = `${origin}${PATH}`;
  // A header with underscores would not pass every proxy.
  const credentials = ['authorization', key] as const;
  // The Things Stack appends a path to its base address, which must therefore have no parameters: they go as headers.
  if (kind === 'thingsStack') return { url: address, headers: [credentials, ...parameters] };
  const url = `${address}?${parameters.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&')}`;
  return { url, headers: [credentials], ...(kind === 'sigfox' ? { template: SIGFOX_TEMPLATE } : {}) };
}

/** Signs of a project's identifier that name its sample device: what an integration tries does not reach devices of another. */
const MARK_SIGNS = 8;

/** A message as the platform posts it, of a device that is a sample. */
export function sampleOf(wanted: Pick<Wanted, 'kind' | 'tag' | 'reference' | 'projectId'>): unknown {
  const mark = wanted.projectId.replaceAll('-', '').slice(-MARK_SIGNS).padStart(MARK_SIGNS, '0');
  switch (wanted.kind) {
    case 'thingsStack':
      return {
        end_device_ids: { device_id: 'sample', dev_eui: `70B3D57E${mark.toUpperCase()}` },
        received_at: '2026-11-20T07:12:44.913Z',
        uplink_message: {
          f_port: 2,
          f_cnt: 1,
          frm_payload: 'AO4BXg==',
          decoded_payload: { temperature: 21.5, humidity: 48 },
        },
      };
    case 'chirpStack':
      return {
        time: '2026-11-20T09:34:15.775Z',
        deviceInfo: { deviceName: 'Sample', devEui: `70b3d57e${mark}` },
        fCnt: 1,
        fPort: 2,
        data: 'y1gB4wHm',
        object: { temperature: 21.5, humidity: 48 },
      };
    case 'sigfox':
      return { device: mark.slice(-6).toUpperCase(), time: 1795159977, data: '01e4006f0b54', seqNumber: 1 };
    case 'custom':
      return { ...placed(tagOf(wanted)[1], `sample-${mark}`), temperature: 21.5 };
  }
}

/** An object in which a value stands where a plain reference points: `$.device.id` or `id`. */
function placed(reference: string, value: string): Record<string, unknown> {
  const steps = reference.startsWith('$') ? reference.split('.').slice(1) : [reference];
  if (steps.length === 0 || steps.some((step) => !/^[\w-]+$/.test(step))) return { id: value };
  return steps.reduceRight<unknown>((inner, step) => ({ [step]: inner }), value) as Record<string, unknown>;
}

/** A command that posts a message as the platform would. */
export function curlOf({ url, headers }: Setup, sample: unknown): string {
  return [
    `curl ${quoted(url)} \\`,
    ...headers.map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)} \\`),
    "  -H 'content-type: application/json' \\",
    `  -d ${quoted(JSON.stringify(sample))}`,
  ].join('\n');
}

/** As a shell takes it, whatever is in it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

const NAME_MAX = 80;

/** The name of an integration's key: what it is, and what for. */
export function keyName(kind: Kind, purpose: string): string {
  return `${BRANDS[kind]}: ${purpose.trim()}`.slice(0, NAME_MAX);
}

/** What a key's name tells; undefined of keys that are none of integrations. */
export function readKeyName(name: string): { kind: Kind; purpose: string } | undefined {
  const kind = KINDS.find((known) => name.startsWith(`${BRANDS[known]}: `));
  return kind && { kind, purpose: name.slice(BRANDS[kind].length + 2) };
}

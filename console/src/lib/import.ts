import type { DeviceInput } from '../api/client';
import { numberFrom } from './exact';

/** Devices out of a table that somebody has: which column is which member, and what a row makes. */

/** What a column can be. Labels carry the name of the column. */
export type Target =
  | 'skip'
  | 'name'
  | 'description'
  | 'project'
  | 'organization'
  | 'protocol'
  | 'latitude'
  | 'longitude'
  | 'address'
  | 'postalCode'
  | 'city'
  | 'region'
  | 'country'
  | 'label';
export const TARGETS: readonly Target[] = [
  'name',
  'description',
  'project',
  'organization',
  'label',
  'latitude',
  'longitude',
  'protocol',
  'address',
  'postalCode',
  'city',
  'region',
  'country',
  'skip',
];

const NO_ADDRESS = { address: null, postalCode: null, city: null, region: null, country: null };

/** How columns are called in files, in lower case and without what is no letter. */
const KNOWN: Record<Exclude<Target, 'skip' | 'label'>, readonly string[]> = {
  name: ['name', 'device', 'devicename', 'gerät', 'gerätename', 'bezeichnung'],
  description: ['description', 'beschreibung', 'comment', 'kommentar', 'notes'],
  project: ['project', 'projectuuid', 'projectid', 'projectname', 'projekt'],
  organization: ['organization', 'organizationid', 'organizationname', 'organisation', 'customer', 'kunde'],
  protocol: ['protocol', 'protokoll'],
  latitude: ['latitude', 'lat', 'breite', 'breitengrad'],
  longitude: ['longitude', 'lon', 'lng', 'long', 'länge', 'längengrad'],
  address: ['address', 'street', 'streetaddress', 'adresse', 'straße', 'strasse'],
  postalCode: ['postalcode', 'zip', 'zipcode', 'postcode', 'plz', 'postleitzahl'],
  city: ['city', 'town', 'stadt', 'ort'],
  region: ['region', 'state', 'bundesland', 'kanton'],
  country: ['country', 'land'],
};

/** What each column probably is: each member once; what is not known becomes a label, so that nothing is lost. */
export function matchColumns(headings: readonly string[]): Target[] {
  const taken = new Set<Target>();
  return headings.map((heading) => {
    const plain = heading.toLowerCase().replace(/[^\p{L}]/gu, '');
    if (plain === '') return 'skip';
    const found = Object.entries(KNOWN).find(
      ([target, names]) => names.includes(plain) && !taken.has(target as Target),
    );
    const target = (found?.[0] ?? 'label') as Target;
    if (target !== 'label') taken.add(target);
    return target;
  });
}

/** A thing that rows may name, by its name or its identifier. */
export interface Named {
  id: string;
  name: string;
}

export interface ImportPlan {
  headings: readonly string[];
  /** Of each row, the line of the file at which it begins. */
  lines: readonly number[];
  targets: readonly Target[];
  projects: readonly Named[];
  organizations: readonly Named[];
  /** For rows that name none. */
  projectId: string;
  organizationId: string;
}

export type RowFault =
  | { kind: 'name' }
  /** More cells than there are headings: a separator stands in a text without quotes. */
  | { kind: 'cells'; value: string }
  | { kind: 'number'; heading: string; value: string }
  | { kind: 'project' | 'organization'; value: string }
  /** Several have this name: only an identifier says which one is meant. */
  | { kind: 'ambiguous'; of: 'project' | 'organization'; value: string };

export interface ImportRow {
  /** The line of the file at which it begins. */
  line: number;
  input: DeviceInput;
  faults: RowFault[];
}

/** What the rows make; the first row holds the headings. */
export function planRows(rows: readonly (readonly string[])[], plan: ImportPlan): ImportRow[] {
  const projects = index(plan.projects);
  const organizations = index(plan.organizations);
  const numeric = plan.targets.map((target, column) => target === 'label' && isNumeric(rows, column));
  return rows
    .slice(1)
    .map((row, at) => rowOf(row, plan.lines[at + 1] ?? at + 2, plan, { projects, organizations, numeric }));
}

/** What a name or an identifier means: one thing, or one of several. */
type Index = Map<string, string | typeof SEVERAL>;
const SEVERAL = Symbol('several');

interface Indexes {
  projects: Index;
  organizations: Index;
  numeric: boolean[];
}

function rowOf(row: readonly string[], line: number, plan: ImportPlan, indexes: Indexes): ImportRow {
  const faults: RowFault[] = [];
  const meta: Record<string, unknown> = {};
  const street: Record<string, string> = {};
  const input: DeviceInput = { name: '', projectUuid: plan.projectId, organizationId: plan.organizationId };
  plan.targets.forEach((target, column) => {
    const value = (row[column] ?? '').trim();
    const heading = plan.headings[column]?.trim() ?? '';
    if (value === '' || target === 'skip') return;
    switch (target) {
      case 'name':
      case 'description':
      case 'protocol':
        input[target] = value;
        break;
      case 'project':
      case 'organization': {
        const id = (target === 'project' ? indexes.projects : indexes.organizations).get(value.toLowerCase());
        if (!id) faults.push({ kind: target, value });
        else if (id === SEVERAL) faults.push({ kind: 'ambiguous', of: target, value });
        else if (target === 'project') input.projectUuid = id;
        else input.organizationId = id;
        break;
      }
      case 'latitude':
      case 'longitude': {
        const degrees = degreesOf(value);
        if (degrees === undefined) faults.push({ kind: 'number', heading, value });
        else meta[target] = degrees;
        break;
      }
      case 'label':
        if (heading !== '') meta[heading] = indexes.numeric[column] ? numberFrom(value) : value;
        break;
      default:
        street[target] = value;
    }
  });
  if (Object.keys(meta).length > 0) input.meta = meta;
  if (Object.keys(street).length > 0) input.streetAddress = { ...NO_ADDRESS, ...street };
  const beyond = row.slice(plan.headings.length).find((value) => value.trim() !== '');
  if (beyond !== undefined) faults.push({ kind: 'cells', value: beyond.trim() });
  if (input.name === '') faults.push({ kind: 'name' });
  return { line, input, faults };
}

/** Names and identifiers, whatever the case. A name that several have means none of them: devices must not land at the wrong customer. */
function index(things: readonly Named[]): Index {
  const map: Index = new Map();
  for (const { id, name } of things) {
    const key = name.toLowerCase();
    map.set(key, map.has(key) ? SEVERAL : id);
  }
  for (const { id } of things) map.set(id.toLowerCase(), id);
  return map;
}

/** A decimal comma is one too. */
function degreesOf(value: string): number | undefined {
  const degrees = Number(value.replace(',', '.'));
  return Number.isFinite(degrees) ? degrees : undefined;
}

const NUMBER = /^-?(0|[1-9]\d{0,7})(\.\d+)?$/;

/** Whether all that stands in a column are plain numbers. What begins with a zero, or is long, names something. */
function isNumeric(rows: readonly (readonly string[])[], column: number): boolean {
  const values = rows.slice(1).map((row) => (row[column] ?? '').trim());
  return values.every((value) => value === '' || NUMBER.test(value)) && values.some((value) => value !== '');
}

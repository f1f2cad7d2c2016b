import { m } from '../paraglide/messages';
import { labelOf, valueParts } from './columns';
import { labelWord } from './table';

/** What stands above a column. */
export function columnWord(path: string): string {
  switch (path) {
    case 'name':
      return m.name();
    case 'statusText':
    case 'statusInt':
      return m.status();
    case 'lastActive':
      return m.last_active();
    case 'projectUuid':
      return m.project();
    case 'organizationName':
    case 'organizationId':
      return m.organization();
    case 'createdAt':
      return m.created();
    case 'updatedAt':
      return m.column_updated();
    case 'description':
      return m.description();
    case 'protocol':
      return m.protocol();
    case 'streetAddress':
      return m.address();
    case 'id':
      return m.identifier();
  }
  const value = valueParts(path);
  if (value) return value.path || value.element;
  return labelWord(labelOf(path) ?? path);
}

/** Where a column comes from, for lists in which two may have one word. */
export function columnSource(path: string): string {
  const value = valueParts(path);
  if (value) return m.column_of_values({ name: value.element });
  return labelOf(path) === undefined ? '' : m.column_of_labels();
}

import { describe, it } from 'vitest';
import { stage, visitor, withVisitor } from './stage';

// What shows health and figures listens at an address of its own, which no browser is told.
stage(() => Promise.resolve(), { ISOBAR_HTTP__OPERATIONS_LISTEN: '127.0.0.1:0' });
withVisitor();

describe('where operations have an address of their own', () => {
  it('the page about the server says where its health is shown', async () => {
    const { page } = visitor;
    await visitor.open('/about');
    await page.getByText('shows its health and its figures at an address of their own').waitFor();
    await page.getByText('Apache License 2.0').waitFor();
  });
});

import { describe, expect, it } from 'vitest';
import { stage, visitor, withVisitor } from './stage';

stage();
withVisitor();

describe('the page to browse the interface', () => {
  it('reads the document and looks as it should under its policy', async () => {
    const { page } = visitor;
    const answer = await page.goto('/v2/docs');
    expect(answer?.headers()['content-security-policy']).toContain("frame-ancestors 'none'");
    const operations = page.locator('details');
    await operations.first().waitFor();
    expect(await operations.count()).toBeGreaterThan(50);
    expect(
      await page
        .locator('summary')
        .first()
        .evaluate((node) => getComputedStyle(node).cursor),
    ).toBe('pointer');
    await page.getByLabel('Find an operation').fill('get /v2/auth/refreshtoken');
    await expect.poll(() => page.locator('details:visible').count()).toBe(1);
  });
});

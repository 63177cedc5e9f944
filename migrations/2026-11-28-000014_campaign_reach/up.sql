-- By which addresses a campaign reaches people: `phone` or `any`.
ALTER TABLE campaigns ADD COLUMN reach text NOT NULL DEFAULT 'phone';

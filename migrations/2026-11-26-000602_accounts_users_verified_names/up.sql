-- Whether the token that brought the name said `email_verified: true`. Mail to other people contains no other name.
ALTER TABLE users ADD COLUMN name_is_verified boolean NOT NULL DEFAULT false;

DROP TABLE mail_recipients;

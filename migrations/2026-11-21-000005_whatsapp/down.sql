DROP TABLE whatsapp_callbacks;
DROP TABLE whatsapp_numbers;
DROP TABLE whatsapp_profiles;

DROP TABLE phone_number_send_slots;
DROP TABLE whatsapp_files;
DROP TABLE whatsapp_held_messages;
DROP TABLE whatsapp_callbacks;
DROP TABLE whatsapp_numbers;
DROP TABLE whatsapp_profiles;

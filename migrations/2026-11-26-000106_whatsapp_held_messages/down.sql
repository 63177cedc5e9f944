DROP TABLE whatsapp_held_messages;

document.title = 'toolgate';
